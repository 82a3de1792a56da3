// The time of a planned step in its pipelines, and that the planner takes the split of the shortest one.
#include "reorder/pipeline/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "reorder/keyed_shuffle.h"
#include "reorder/planner.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {
namespace {

PhaseSpec SpecOf(const Phase& phase, std::vector<uint32_t> ranks) {
  return {.phase = phase, .ranks = std::move(ranks), .runs = Runs::kOncePerMicrobatch};
}

// Two ranks of the llm, vision on `vision_ranks`, then two stages of the llm.
Job MakeJob(std::vector<uint32_t> vision_ranks) {
  Job job{.pipeline_stages = 3};
  job.phases = {SpecOf(Phase::kLlm, {0, 1}), SpecOf(kVisionPhase, std::move(vision_ranks))};
  job.pipeline = {.given = true, .stages = 3, .chunks = {{{"vision", 1}}, {{"llm", 0.5}}, {{"llm", 0.5}}}};
  return job;
}

// Of one rank; vision runs before two equal stages, and a backward takes twice the forward.
double ByDefinition(const std::vector<double>& vision, const std::vector<double>& llm) {
  PipelineProblem problem{.stages = 3};
  for (size_t m = 0; m < llm.size(); ++m) {
    problem.forward.insert(problem.forward.end(), {vision[m], llm[m] / 2, llm[m] / 2});
    problem.backward.insert(problem.backward.end(), {2 * vision[m], llm[m], llm[m]});
  }
  return SimulatePipeline(problem, InOrder(static_cast<uint32_t>(llm.size()))).iteration_time;
}

double StepTimeOf(const Job& job, const LlmUnits& llm, const EncoderUnits& vision,
                  uint32_t num_microbatches = 2) {
  const std::vector<const PhaseSpec*> encoders = {&job.phases[1]};
  const auto layout = MakeLayout(job, job.phases[0], encoders);
  EXPECT_TRUE(layout.ok()) << layout.status();
  const PipelineModel model(job, job.phases[0], encoders);
  return PipelineStepTime(model, *layout, {vision}, num_microbatches, llm);
}

// Four samples, on two ranks of two microbatches.
LlmUnits FourSamples() { return {.tokens = {8, 6, 4, 2}, .rank = {0, 0, 1, 1}, .microbatch = {0, 1, 0, 1}}; }

// Three items, of 5, 3 and 9.
EncoderUnits ThreeItems(std::vector<uint32_t> sample, std::vector<uint32_t> rank) {
  EncoderUnits vision;
  vision.item = {0, 1, 2};
  vision.sample = std::move(sample);
  vision.length = {5, 3, 9};
  vision.rank = std::move(rank);
  return vision;
}

TEST(PipelineStepTime, IsThatOfTheSlowestRankWithItsOwnItems) {
  // The second item was moved to the other rank.
  const EncoderUnits vision = ThreeItems({0, 1, 3}, {0, 1, 1});
  const double first = ByDefinition({5, 0}, {8, 6}), second = ByDefinition({0, 3 + 9}, {4, 2});
  EXPECT_DOUBLE_EQ(StepTimeOf(MakeJob({0, 1}), FourSamples(), vision), std::max(first, second));
  EXPECT_NE(first, second);
}

TEST(PipelineStepTime, EncodersApartCountWithTheirBusiestRank) {
  const EncoderUnits vision = ThreeItems({0, 2, 3}, {0, 1, 2});  // on three ranks
  const std::vector<double> busiest = {5, 9};
  EXPECT_DOUBLE_EQ(StepTimeOf(MakeJob({7, 8, 9}), FourSamples(), vision),
                   std::max(ByDefinition(busiest, {8, 6}), ByDefinition(busiest, {4, 2})));
}

double StepTimeOf(const Job& job, const Plan& plan) {
  LlmUnits llm;
  EncoderUnits vision;
  for (const PlannedSample& sample : plan.samples) {
    llm.tokens.push_back(sample.llm_length);
    llm.rank.push_back(sample.place.rank);
    llm.microbatch.push_back(sample.place.microbatch);
  }
  for (uint32_t i = 0; i < plan.items.size(); ++i) {
    if (plan.items[i].sample == kDummy) continue;
    vision.item.push_back(i);
    vision.sample.push_back(plan.items[i].sample);
    vision.length.push_back(plan.items[i].lengths.cost_length);
    vision.rank.push_back(plan.items[i].place.rank);
  }
  return StepTimeOf(job, llm, vision, plan.num_microbatches);
}

TEST(PipelineStepTime, ThePlannersSplitIsNeverSlowerThanOneSplit) {
  for (const bool apart : {false, true}) {
    Job job = MakeJob(apart ? std::vector<uint32_t>{100, 101} : std::vector<uint32_t>{0, 1});
    job.phases[1].cost.linear = 0.25;
    job.microbatch.capacity_tokens = 16384;
    int faster = 0;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      const StepSamples samples = DrawVisionStep(seed, 160, 16384);
      const auto plan = MakePlan(job, samples, {});
      const auto of_one_split = MakePlan(job, samples, {}, {.compares_splits = false});
      ASSERT_TRUE(plan.ok() && of_one_split.ok()) << plan.status() << of_one_split.status();
      EXPECT_TRUE(PlanCheck(job, samples, *plan).ok());
      EXPECT_EQ(plan->num_microbatches, of_one_split->num_microbatches);
      const double time = StepTimeOf(job, *plan), before = StepTimeOf(job, *of_one_split);
      EXPECT_LE(time, before) << seed << apart;
      faster += time < before;
    }
    EXPECT_GE(faster, 3) << apart;
  }
}

}  // namespace
}  // namespace evenkeel::reorder
