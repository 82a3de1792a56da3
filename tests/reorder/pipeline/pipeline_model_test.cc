// The pipeline of a job as it is, and that the stream's order of microbatches suits it.
#include "reorder/pipeline/pipeline_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/planner.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {
namespace {

PhaseSpec SpecOf(const Phase& phase, uint32_t first, uint32_t ranks) {
  PhaseSpec spec{.phase = phase, .runs = Runs::kOncePerMicrobatch};
  for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(first + r);
  return spec;
}

// The llm on ranks from 0, vision on as many or, apart, on ranks from 100.
Job MakeJob(uint32_t ranks, uint32_t encoder_ranks, bool apart, uint32_t stages) {
  Job job{.pipeline_stages = stages};
  job.phases = {SpecOf(Phase::kLlm, 0, ranks), SpecOf(kVisionPhase, apart ? 100 : 0, encoder_ranks)};
  job.phases[1].cost.linear = 0.25;
  job.microbatch.capacity_tokens = 16384;
  return job;
}

PipelineModel ModelOf(const Job& job) {
  const std::vector<const PhaseSpec*> encoders = {&job.phases[1]};
  return PipelineModel(job, job.phases[0], encoders);
}

// [columns][microbatches] of an llm rank, as the plan has placed items over the encoder's ranks.
std::vector<std::vector<double>> CostsOf(const Job& job, const Plan& plan, uint32_t rank) {
  std::vector<std::vector<double>> costs(2, std::vector<double>(plan.num_microbatches, 0));
  for (const PlannedSample& sample : plan.samples) {
    if (sample.place.rank == rank) costs[0][sample.place.microbatch] += sample.llm_length;
  }
  const double share = static_cast<double>(job.phases[0].ranks.size()) / job.phases[1].ranks.size();
  for (const PlannedItem& item : plan.items) {
    if (item.sample == kDummy) continue;
    if (plan.samples[item.sample].place.rank != rank) continue;
    costs[1][plan.samples[item.sample].place.microbatch] += 0.25 * item.lengths.cost_length * share;
  }
  return costs;
}

Plan PlanOf(const Job& job, const StepSamples& samples, const std::string& order) {
  DummyItems dummies;
  const auto plan = MakePlan(job, samples, dummies, {.microbatch_order = order});
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(PlanCheck(job, samples, *plan).ok());
  return *plan;
}

double TimeInOrder(const PipelineProblem& problem) {
  return PipelineClock(problem).Try(InOrder(problem.num_microbatches()), 0);
}

// What the stream's order gains over the given one, of what the search gains on `true_pipeline` of the same
// microbatches.
double ShareOfTheGain(const Job& job, const PipelineModel& true_pipeline, uint64_t seeds) {
  double gained = 0, possible = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const StepSamples samples = DrawVisionStep(seed, 160, 16384);
    const PipelineProblem given = true_pipeline.Problem(CostsOf(job, PlanOf(job, samples, "given"), 0));
    const PipelineProblem ours = true_pipeline.Problem(CostsOf(job, PlanOf(job, samples, ""), 0));
    EXPECT_GE(given.num_microbatches(), 8u);
    const auto best = SolveOrder({.pipeline = given, .seed = seed});
    EXPECT_TRUE(best.ok()) << best.status();
    gained += TimeInOrder(given) - TimeInOrder(ours);
    possible += TimeInOrder(given) - best->timeline.iteration_time;
  }
  EXPECT_GT(possible, 0);
  return gained / possible;
}

// vision, then four stages of the llm, without the class under test.
std::vector<std::vector<ChunkPart>> EncoderThenFour() {
  std::vector<std::vector<ChunkPart>> chunks = {{{"vision", 1}}};
  for (int i = 0; i < 4; ++i) chunks.push_back({{"llm", 0.25}});
  return chunks;
}

TEST(PipelineModel, OrdersAnEncoderStageBeforeFourLlmStages) {
  for (const bool frozen : {false, true}) {
    for (const bool described : {false, true}) {
      Job job = MakeJob(1, 1, /*apart=*/true, 4);
      job.pipeline.given = true;
      if (frozen) job.pipeline.passes = {{.phase = "vision", .frozen = true}};
      if (described) job.pipeline.chunks = EncoderThenFour(), job.pipeline.stages = 5;
      EXPECT_EQ(ModelOf(job).num_stages(), 5u);
      EXPECT_GE(ShareOfTheGain(job, ModelOf(job), 6), 0.98) << frozen << described;
    }
  }
}

TEST(PipelineModel, AGeneratorIsAStageAfterTheLlm) {
  Job job = MakeJob(1, 1, /*apart=*/true, 2);
  job.pipeline.given = true;
  Phase draw("draw", 2, {Medium::kImage});
  draw.BecomeGenerator();
  job.phases.push_back(SpecOf(draw, 200, 1));
  const std::vector<const PhaseSpec*> phases = {&job.phases[1], &job.phases[2]};
  const std::vector<std::vector<double>> costs = {{8, 6}, {3, 5}, {7, 2}};
  const auto problem = [&] { return PipelineModel(job, job.phases[0], phases).Problem(costs); };
  EXPECT_EQ(problem().stages, 4u);
  EXPECT_EQ(problem().forward, (std::vector<double>{3, 4, 4, 7, 5, 3, 3, 2}));
  EXPECT_EQ(problem().backward, (std::vector<double>{6, 8, 8, 14, 10, 6, 6, 4}));
  // Gradients of the rows pass through a generator that is not trained, and through a frozen llm to encoders alone.
  job.pipeline.passes = {{.phase = "draw", .frozen = true}};
  EXPECT_EQ(problem().backward, (std::vector<double>{6, 8, 8, 7, 10, 6, 6, 2}));
  job.pipeline.passes = {{.phase = "llm", .frozen = true}, {.phase = "vision", .frozen = true}};
  EXPECT_EQ(problem().backward, (std::vector<double>{0, 0, 0, 14, 0, 0, 0, 4}));
}

TEST(PipelineModel, AnEncoderOnTheRanksOfTheLlmIsOrderedByItsChunks) {
  for (const bool frozen : {false, true}) {
    Job job = MakeJob(1, 1, /*apart=*/false, 5);
    job.pipeline = {.given = true, .stages = 5, .chunks = EncoderThenFour()};
    if (frozen) job.pipeline.passes = {{.phase = "vision", .frozen = true}};
    EXPECT_GE(ShareOfTheGain(job, ModelOf(job), 6), 0.98) << frozen;
  }
}

TEST(PipelineModel, FourStagesOfTwoChunksEachAreInterleaved) {
  Job job = MakeJob(2, 2, /*apart=*/false, 4);
  job.virtual_stages = 2;
  job.microbatch.count_multiple = 4;
  job.pipeline = {.given = true, .stages = 4, .chunks = {{{"vision", 1}, {"llm", 0.0625}}}};
  for (int c = 0; c < 7; ++c) job.pipeline.chunks.push_back({{"llm", 0.9375 / 7}});
  const PipelineModel model = ModelOf(job);
  const Plan plan = PlanOf(job, DrawVisionStep(3, 160, 16384), "");
  EXPECT_EQ(plan.num_microbatches % 4, 0u);
  const PipelineProblem problem = model.Problem(CostsOf(job, plan, 0));
  EXPECT_TRUE(CheckPipeline(problem).ok());
  EXPECT_EQ(problem.schedule, PipelineSchedule::kInterleaved1F1B);
  EXPECT_EQ(problem.num_chunks(), 8u);
  EXPECT_GE(ShareOfTheGain(job, model, 3), 0.98);
}

TEST(PipelineModel, RanksThatShareEncodersAreFasterThanInTheGivenOrARandomOrder) {
  Job job = MakeJob(4, 12, /*apart=*/true, 4);
  job.pipeline.given = true;
  const PipelineModel model = ModelOf(job);
  const auto step_time = [&](const Plan& plan) {
    std::vector<std::vector<std::vector<double>>> of_rank;
    for (uint32_t r = 0; r < 4; ++r) of_rank.push_back(CostsOf(job, plan, r));
    std::vector<double> mean(plan.num_microbatches, 0);
    for (const auto& costs : of_rank) {
      for (uint32_t m = 0; m < mean.size(); ++m) mean[m] += costs[1][m] / 4;
    }
    double slowest = 0;
    for (auto& costs : of_rank) {
      costs[1] = mean;
      slowest = std::max(slowest, TimeInOrder(model.Problem(costs)));
    }
    return slowest;
  };
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const StepSamples samples = DrawVisionStep(seed, 640, 16384);
    const double ours = step_time(PlanOf(job, samples, ""));
    EXPECT_LT(ours, step_time(PlanOf(job, samples, "given"))) << seed;
    EXPECT_LT(ours, step_time(PlanOf(job, samples, "random"))) << seed;
  }
}

TEST(PipelineModel, PassesFollowFactorsAndFrozenPhases) {
  Job job = MakeJob(1, 1, /*apart=*/true, 2);
  job.pipeline.given = true;
  job.pipeline.passes = {{.phase = "vision", .forward = 3, .backward = 1}};
  const std::vector<std::vector<double>> costs = {{8}, {1}};
  EXPECT_EQ(ModelOf(job).Problem(costs).forward, (std::vector<double>{3, 4, 4}));
  EXPECT_EQ(ModelOf(job).Problem(costs).backward, (std::vector<double>{3, 8, 8}));
  job.pipeline.passes = {{.phase = "llm", .frozen = true}};
  EXPECT_EQ(ModelOf(job).Problem(costs).backward, (std::vector<double>{2, 4, 4}))
      << "gradients of inputs alone";
  job.pipeline.passes.push_back({.phase = "vision", .frozen = true});
  EXPECT_EQ(ModelOf(job).Problem(costs).backward, (std::vector<double>{0, 0, 0})) << "nothing is trained";
}

TEST(PipelineModel, WithoutASectionEncodersOnTheLlmsRanksAreCutWithIt) {
  const Job job = MakeJob(1, 1, /*apart=*/false, 2);
  const PipelineModel model = ModelOf(job);
  EXPECT_EQ(model.num_stages(), 2u);
  EXPECT_FALSE(model.HasShared());
  const std::vector<std::vector<double>> costs = {{6, 6}, {2, 2}};
  EXPECT_EQ(model.Problem(costs).forward, (std::vector<double>{4, 4, 4, 4}));
}

}  // namespace
}  // namespace evenkeel::reorder
