// DHP's claim on its own kind of data, and the model's own sums.
#include "advise/step_model_degrees.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "advise/policies.h"
#include "advise/step_model.h"
#include "tests/advise/video_runs.h"

namespace evenkeel::advise {
namespace {

// DHP 6.1: 64 accelerators of 8 to a node, 512 sequences a step.
constexpr uint32_t kRanks = 64;
constexpr size_t kSequences = 512;
const Machine kMachine = {.recompute = false};

StepSamples StepOf(const std::vector<uint32_t>& tokens) {
  StepSamples step;
  for (uint32_t n : tokens) {
    step.refs.push_back({0, 0, step.refs.size()});
    step.lengths.push_back({.llm_length = n});
  }
  return step;
}

StepSamples DrawStep(const VideoSet& set, uint64_t seed) {
  StepSamples step{.lengths = DrawVideos(set, seed, kSequences)};
  for (SampleLengths& video : step.lengths) video.items.clear();
  for (uint64_t s = 0; s < kSequences; ++s) step.refs.push_back({0, 0, s});
  return step;
}

// A run of this one step.
StepFigures FiguresOf(std::string_view name, const TrainingModel& model, const Job& job,
                      const StepSamples& step, const Machine& machine = kMachine) {
  const DegreePolicy& policy = *FindDegreePolicy(name);
  const auto degrees = DegreesOfARun(policy, job, LongestOf(step.lengths), model, machine);
  EXPECT_TRUE(degrees.ok()) << name << ": " << degrees.status();
  std::optional<StepFigures> best;
  for (uint32_t degree : degrees.ok() ? *degrees : std::vector<uint32_t>()) {
    auto figures = ModelDegrees(policy, job, step, model, machine, degree);
    EXPECT_TRUE(figures.ok()) << name << ": " << figures.status();
    if (!figures.ok()) continue;
    if (!best || figures->iteration_seconds < best->iteration_seconds) best = *std::move(figures);
  }
  return best ? *std::move(best) : StepFigures();
}

// Geometric means over DHP's six models on its machine, of the time with the static degrees of the better
// trainer over that of others.
struct Gains {
  double dhp = 1, regroup = 1;
};
Gains GainsOn(const VideoSet& set, uint64_t seed) {
  const char* const models[] = {"internvl3-2b", "internvl2.5-4b", "internvl3-8b",
                                "qwen3-vl-2b",  "qwen3-vl-4b",    "qwen3-vl-8b"};
  Gains gains;
  for (const char* model : models) {
    auto seconds = SecondsOfDegrees(model, set, seed, /*steps=*/4, DhpMachine());
    EXPECT_TRUE(seconds.ok()) << seconds.status();
    if (!seconds.ok()) continue;
    const double trainers = std::min((*seconds)["megatron"], (*seconds)["deepspeed"]);
    gains.dhp *= std::pow(trainers / (*seconds)["dhp"], 1.0 / std::size(models));
    gains.regroup *= std::pow(trainers / (*seconds)["regroup"], 1.0 / std::size(models));
  }
  return gains;
}

TEST(StepModelDegrees, DynamicDegreesBeatTheStaticOnesOfTrainers) {
  for (const VideoSet& set : VideoSets()) {
    const bool alike = std::string_view(set.name) == "msrvtt";
    double dhp = 1;
    for (uint64_t seed : {11, 12, 13}) {
      const Gains gains = GainsOn(set, seed);
      dhp *= gains.dhp;
      EXPECT_GT(gains.regroup, alike ? 1.02 : 1.08) << set.name << " " << seed;
      EXPECT_GT(gains.regroup, gains.dhp) << set.name << " " << seed;
    }
    EXPECT_GT(dhp, 1) << set.name;
  }
}

TEST(StepModelDegrees, OursBeatsTheBestStaticDegreesOfEveryStepInHindsight) {
  double gain = 1;
  for (const char* model :
       {"internvl3-2b", "internvl2.5-4b", "internvl3-8b", "qwen3-vl-2b", "qwen3-vl-4b", "qwen3-vl-8b"}) {
    auto seconds = *SecondsOfDegrees(model, VideoSets().front(), /*seed=*/5, /*steps=*/4, kMachine);
    const double over = std::min(seconds["static_power_of_two"], seconds["static"]) / seconds["regroup"];
    EXPECT_GT(over, 0.98) << model;
    gain *= over;
  }
  EXPECT_GT(gain, 1.5) << "of six models together";
}

// One sequence that needs four ranks, and short ones.
TEST(StepModelDegrees, TrainersUseOneDegreeThatFitsTheLongestSequenceOfAll) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  const Job job = JobOfModel(model, 8, 8);
  const DegreePolicy& deepspeed = *FindDegreePolicy("deepspeed");
  const double token = 34.0 * 28 * 3584;  // bytes
  const uint64_t per_rank = static_cast<uint64_t>((kMachine.memory_bytes - 8e9 * 16 / 8) / token);
  EXPECT_EQ(*DegreesOfARun(deepspeed, job, per_rank, model, kMachine), (std::vector<uint32_t>{1, 2, 4, 8}));
  EXPECT_EQ(*DegreesOfARun(deepspeed, job, per_rank + 1, model, kMachine), (std::vector<uint32_t>{2, 4, 8}));
  EXPECT_EQ(*DegreesOfARun(deepspeed, job, 3 * per_rank, model, kMachine), (std::vector<uint32_t>{4, 8}));
  EXPECT_EQ(*DegreesOfARun(*FindDegreePolicy("dhp"), job, 3 * per_rank, model, kMachine),
            (std::vector<uint32_t>{0}));
  // All weights and gradients on every rank leave Megatron-LM less room.
  EXPECT_GT(DegreesOfARun(*FindDegreePolicy("megatron"), job, per_rank, model, kMachine)->front(), 1);
  const absl::Status none = DegreesOfARun(deepspeed, job, 9 * per_rank, model, kMachine).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(none.message().find("up to 8 ranks holds it"), none.message().npos) << none;
  const StepSamples step = StepOf({static_cast<uint32_t>(2 * per_rank)});
  EXPECT_FALSE(ModelDegrees(deepspeed, job, step, model, kMachine, 1).ok());
  EXPECT_FALSE(ModelDegrees(deepspeed, job, step, model, kMachine, 3).ok()) << "no power of two";
  EXPECT_TRUE(ModelDegrees(deepspeed, job, step, model, kMachine, 2).ok());
}

// Six ranks hold it, but no power of two of them does.
TEST(StepModelDegrees, RefusesADegreeThatRanksDoNotHave) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  const Job job = JobOfModel(model, 6, 6);
  const double token = 34.0 * 28 * 3584;
  const uint64_t per_rank = static_cast<uint64_t>((kMachine.memory_bytes - 8e9 * 16 / 6) / token);
  EXPECT_EQ(DegreesOfARun(*FindDegreePolicy("deepspeed"), job, 5 * per_rank, model, kMachine).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(StepModelDegrees, UlyssesExchangesAllToAllAndCutsByHeads) {
  const TrainingModel& model = *FindTrainingModel("internvl3-2b");  // 12 heads
  Machine machine = kMachine;
  const StepSamples step = StepOf({20000});
  const DegreePolicy& policy = *FindDegreePolicy("deepspeed");
  const StepFigures four = *ModelDegrees(policy, JobOfModel(model, 8, 8), step, model, machine, 4);
  // Queries, keys, values and outputs, two bytes each: of a quarter of the tokens three quarters, twice.
  const double bytes = 2.0 * 28 * (2 * 1536 + 2 * 256) * 20000 / 4 * 3 / 4;
  EXPECT_NEAR(four.exchange_seconds, 2 * bytes / machine.intra_node_bandwidth, 1e-12);
  EXPECT_EQ(four.inter_node_bytes, 0);
  const double linear = 3 * 2 * 1.7e9 * 20000 / machine.peak_flops,
               attention = 3 * 2.0 * 28 * 1536 * 4e8 / machine.peak_flops;
  EXPECT_NEAR(four.iteration_seconds, (linear + attention) / 4 + four.exchange_seconds, 1e-9);
  const StepFigures eight = *ModelDegrees(policy, JobOfModel(model, 8, 8), step, model, machine, 8);
  EXPECT_NEAR(eight.iteration_seconds - eight.exchange_seconds, (linear + attention * 2 * 8 / 12) / 8, 1e-9)
      << "four of eight ranks have two heads";
  // On two nodes a group of four sends two thirds of what it sends to the other one.
  const StepFigures between = *ModelDegrees(policy, JobOfModel(model, 8, 2), step, model, machine, 4);
  EXPECT_NEAR(between.exchange_seconds, 2 * bytes * 2 / 3 / machine.inter_node_bandwidth, 1e-12);
  EXPECT_NEAR(between.inter_node_bytes, 4 * bytes * 2 / 3, 1);
}

TEST(StepModelDegrees, GroupsShareNoRankAtAnyTimeAndKeepTheMemory) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  const Job job = JobOfModel(model, kRanks, 8);
  const StepSamples step = DrawStep(VideoSets().front(), 9);
  uint64_t tokens = 0;
  for (const SampleLengths& lengths : step.lengths) tokens += lengths.llm_length;
  for (const DegreePolicy& policy : DegreePolicies()) {
    const StepFigures figures = FiguresOf(policy.name, model, job, step);
    uint64_t of_groups = 0;
    std::vector<std::vector<std::pair<double, double>>> busy(kRanks);
    for (const GroupFigures& group : figures.groups) {
      of_groups += group.tokens;
      EXPECT_LE(group.end, figures.iteration_seconds);
      for (uint32_t r : group.ranks) busy[r].emplace_back(group.start, group.end);
    }
    EXPECT_EQ(of_groups, tokens) << policy.name;
    for (auto& times : busy) {
      std::sort(times.begin(), times.end());
      for (size_t i = 1; i < times.size(); ++i) EXPECT_LE(times[i - 1].second, times[i].first) << policy.name;
    }
    EXPECT_LE(figures.peak_memory_bytes, kMachine.memory_bytes) << policy.name;
    EXPECT_LE(figures.mfu, 1) << policy.name;
    EXPECT_NEAR(figures.bubble_share, 1 - figures.mfu, 1e-9) << policy.name << ": nothing is computed twice";
  }
}

// As long that no two fit on a rank.
TEST(StepModelDegrees, AnEvenStepKeepsNobodyWaiting) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  for (const DegreePolicy& policy : DegreePolicies()) {
    const StepFigures figures =
        FiguresOf(policy.name, model, JobOfModel(model, 8, 4), StepOf(std::vector<uint32_t>(8, 12000)));
    EXPECT_NEAR(figures.mfu, 1, 1e-9) << policy.name;
    EXPECT_EQ(figures.exchange_seconds, 0) << policy.name;
    const double flops = 2 * 7.7e9 * 12000 + 2.0 * 28 * 3584 * 12000 * 12000;
    EXPECT_NEAR(figures.iteration_seconds, 3 * flops / kMachine.peak_flops, 1e-9) << policy.name;
  }
}

TEST(StepModelDegrees, ARingBetweenNodesWaitsForItsBandwidth) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  const StepSamples step = StepOf({20000});
  Machine machine = kMachine;
  machine.memory_bytes = 1.5e5 * 34 * 28 * 3584 / 10 + 16 * 8e9 / 2;  // 15,000 tokens and the states
  const StepFigures within = FiguresOf("regroup", model, JobOfModel(model, 2, 2), step, machine);
  const StepFigures between = FiguresOf("regroup", model, JobOfModel(model, 2, 1), step, machine);
  ASSERT_EQ(within.groups.size(), 1);
  EXPECT_EQ(within.groups[0].ranks.size(), 2);
  EXPECT_EQ(within.inter_node_bytes, 0);
  // Keys and values of 512 each in 28 layers, two bytes, of half the tokens, by both ranks.
  const double bytes = 2.0 * 2 * 28 * 512 * 10000;
  EXPECT_NEAR(between.inter_node_bytes, 2 * bytes, 1);
  const double compute = within.iteration_seconds - within.exchange_seconds;
  const double attention = 3 * 2.0 * 28 * 3584 * 20000.0 * 20000 / 2 / machine.peak_flops;
  machine.inter_node_bandwidth = 1e9;
  const StepFigures slow = FiguresOf("regroup", model, JobOfModel(model, 2, 1), step, machine);
  EXPECT_NEAR(slow.exchange_seconds, 3 * bytes / 1e9 - attention, 1e-9);
  EXPECT_NEAR(slow.iteration_seconds, compute + slow.exchange_seconds, 1e-9);
}

// A model so small that weights take no memory, and a machine whose ranks hold one sequence of 1,000 tokens at a time.
TrainingModel SmallModel() {
  return {.name = "small", .phases = {{.phase = Phase::kLlm, .parameters = 10, .layers = 4, .hidden = 64}}};
}
Machine MachineForOneSequence() {
  Machine machine = kMachine;
  machine.memory_bytes = 1.5 * 1000 * kLayerActivationBytes * 4 * 64;
  return machine;
}

TEST(StepModelDegrees, WithStagesARankIsAPipelineOfItsMicrobatches) {
  const TrainingModel model = SmallModel();
  const StepSamples step = StepOf(std::vector<uint32_t>(8, 1000));
  Job job = JobOfModel(model, 1, 1);
  const StepFigures alone = FiguresOf("megatron", model, job, step, MachineForOneSequence());
  ASSERT_EQ(alone.groups.size(), 8);
  EXPECT_EQ(alone.pipeline_bubble_share, 0);
  for (const uint32_t stages : {2, 4}) {
    job.pipeline_stages = stages;
    const StepFigures figures = FiguresOf("megatron", model, job, step, MachineForOneSequence());
    ASSERT_EQ(figures.groups.size(), 8);
    // 1F1B of m equal microbatches on p stages: m + p - 1 times forward and backward of a stage.
    EXPECT_NEAR(figures.iteration_seconds / alone.iteration_seconds, (8.0 + stages - 1) / (8 * stages), 1e-9);
    EXPECT_NEAR(figures.pipeline_bubble_share, (stages - 1.0) / (8 + stages - 1), 1e-9);
    EXPECT_NEAR(figures.mfu / alone.mfu, 8.0 / (8 + stages - 1), 1e-9);
  }
}

TEST(StepModelDegrees, PipelinesOfOneDegreeWaitAtTheEndOfTheStep) {
  const TrainingModel model = SmallModel();
  Job job = JobOfModel(model, 2, 2);
  job.pipeline_stages = 4;
  // In turn: one rank has the long sequences, the other the short ones.
  const StepFigures both = FiguresOf(
      "megatron", model, job, StepOf({1000, 800, 1000, 800, 1000, 800, 1000, 800}), MachineForOneSequence());
  job = JobOfModel(model, 1, 1);
  job.pipeline_stages = 4;
  const StepFigures slower =
      FiguresOf("megatron", model, job, StepOf({1000, 1000, 1000, 1000}), MachineForOneSequence());
  EXPECT_NEAR(both.iteration_seconds, slower.iteration_seconds, 1e-12);
}

// One sequence a microbatch in both models, so they must agree: on stages, virtual stages, recomputation, frozen phases.
TEST(StepModelDegrees, GroupsOfOneRankAreThePipelinesOfStepModel) {
  const TrainingModel model = SmallModel();
  for (uint32_t trial = 0; trial < 200; ++trial) {
    reorder::Random random(trial);
    const uint32_t ranks = 1 + trial % 4, stages = 1u << trial / 4 % 3;
    Job job = JobOfModel(model, ranks, 2);
    job.pipeline_stages = stages;
    job.virtual_stages = stages > 1 ? 1 + trial / 12 % 2 : 1;
    job.microbatch.count_multiple = job.virtual_stages > 1 ? stages : 1;
    if (trial % 5 == 0) {
      job.pipeline = {.given = true, .transfer = 1e-7, .passes = {{.phase = "llm", .frozen = true}}};
    }
    job = *WithCostsOf(model, job);
    std::vector<uint32_t> tokens(size_t{ranks} * stages * (1 + trial % 6));
    for (uint32_t& n : tokens) n = static_cast<uint32_t>(800 + random.Below(200));
    Machine machine = MachineForOneSequence();
    const auto plan = PlanByPolicy(*FindPolicy("megatron"), job, StepOf(tokens), {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const StepFigures as_plan = *ModelStep(job, *plan, model, machine);
    const StepFigures as_groups =
        *ModelDegrees(*FindDegreePolicy("megatron"), job, StepOf(tokens), model, machine, 1);
    EXPECT_NEAR(as_groups.iteration_seconds / as_plan.iteration_seconds, 1, 1e-9) << trial;
    EXPECT_NEAR(as_groups.mfu, as_plan.mfu, 1e-9) << trial;
    EXPECT_NEAR(as_groups.pipeline_bubble_share, as_plan.pipeline_bubble_share, 1e-9) << trial;
    EXPECT_NEAR(as_groups.slowest.iteration_time, as_plan.slowest.iteration_time, 1e-15) << trial;
  }
}

TEST(StepModelDegrees, HybridDegreesWaitAfterEveryRound) {
  const TrainingModel model = SmallModel();
  const Job job = JobOfModel(model, 2, 2);
  // One sequence needs both ranks, then each rank has one of the others.
  const StepFigures figures =
      FiguresOf("megatron_hybrid", model, job, StepOf({900, 2500, 900}), MachineForOneSequence());
  ASSERT_EQ(figures.groups.size(), 3);
  EXPECT_EQ(figures.groups[0].ranks.size(), 2);
  EXPECT_EQ(figures.groups[0].tokens, 2500);
  for (size_t g : {1, 2}) {
    EXPECT_EQ(figures.groups[g].ranks.size(), 1);
    EXPECT_NEAR(figures.groups[g].start, figures.groups[0].end, 1e-15);
  }
}

TEST(StepModelDegrees, RefusesWhatItCannotModel) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  Job job = JobOfModel(model, 2, 2);
  const DegreePolicy& policy = *FindDegreePolicy("regroup");
  const auto refused = [&](const StepSamples& step, const Machine& machine) {
    return ModelDegrees(policy, job, step, model, machine, 0).status();
  };
  EXPECT_EQ(refused(StepOf({1 << 30}), kMachine).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(StepOf({100}), {.memory_bytes = 0}).code(), absl::StatusCode::kInvalidArgument);
  job.pipeline = {.given = true, .stages = 2, .chunks = {{{"vision", 1}}, {{"llm", 1}}}};
  job.pipeline_stages = 2;
  EXPECT_EQ(refused(StepOf({100}), kMachine).code(), absl::StatusCode::kInvalidArgument);
  job = JobOfModel(*FindTrainingModel("mllm-10b"), 2, 2);  // with audio, which this model has not
  EXPECT_EQ(refused(StepOf({100}), kMachine).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FindDegreePolicy("best"), nullptr);
}

}  // namespace
}  // namespace evenkeel::advise
