// DHP's claim on its own kind of data, and the model's own sums.
#include "reorder/step_model_degrees.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/reorder/omni_trace.h"

namespace evenkeel {
namespace {

// DHP 6.1: 64 accelerators of 8 to a node, 512 sequences a step.
constexpr uint32_t kRanks = 64;
constexpr size_t kSequences = 512;
const Machine kMachine = {.recompute = false};

Job MakeJob(const TrainingModel& model, uint32_t ranks, uint32_t ranks_per_node) {
  Job job;
  job.ranks_per_node = ranks_per_node;
  for (const PhaseModel& phase : model.phases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase.phase;
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
  }
  return job;
}

StepSamples StepOf(const std::vector<uint32_t>& tokens) {
  StepSamples step;
  for (uint32_t n : tokens) {
    step.refs.push_back({0, 0, step.refs.size()});
    step.lengths.push_back({.llm_length = n});
  }
  return step;
}

// Most videos are short, few are many times as long (DHP, figure 1).
StepSamples DrawVideos(uint64_t seed) {
  static constexpr uint32_t kTokensPerSecond[] = {256, 220, 390, 920};
  Random random(seed);
  std::vector<uint32_t> tokens;
  for (size_t s = 0; s < kSequences; ++s) {
    const uint32_t seconds = random.Length(1.6, 0.95, 1, 120);
    tokens.push_back(seconds * kTokensPerSecond[random.Below(4)] + random.Length(4.2, 0.8, 8, 2000));
  }
  return StepOf(tokens);
}

StepFigures FiguresOf(const char* policy, const TrainingModel& model, const Job& job, const StepSamples& step,
                      const Machine& machine = kMachine) {
  auto figures = ModelDegrees(*FindDegreePolicy(policy), job, step, model, machine);
  EXPECT_TRUE(figures.ok()) << policy << ": " << figures.status();
  return figures.ok() ? *std::move(figures) : StepFigures();
}

// Mean iteration time over several steps.
double MeanTime(const char* policy, const char* model_name) {
  const TrainingModel& model = *FindTrainingModel(model_name);
  double seconds = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    seconds += FiguresOf(policy, model, MakeJob(model, kRanks, 8), DrawVideos(seed)).iteration_seconds / 6;
  }
  return seconds;
}

TEST(StepModelDegrees, DynamicDegreesBeatStaticOnes) {
  for (const char* model :
       {"internvl3-2b", "internvl2.5-4b", "internvl3-8b", "qwen3-vl-2b", "qwen3-vl-4b", "qwen3-vl-8b"}) {
    const double ours = MeanTime("regroup", model);
    EXPECT_LT(ours, 0.9 * MeanTime("megatron", model)) << model;
    EXPECT_LT(ours, 0.95 * MeanTime("static_power_of_two", model)) << model;
    EXPECT_LT(ours, 0.95 * MeanTime("static", model)) << model;
  }
}

TEST(StepModelDegrees, DhpBeatsStaticDegreesOnItsLargerModels) {
  for (const char* model : {"internvl3-8b", "qwen3-vl-8b"}) {
    EXPECT_LT(MeanTime("dhp", model), MeanTime("megatron", model)) << model;
  }
}

TEST(StepModelDegrees, GroupsShareNoRankAtAnyTimeAndKeepTheMemory) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  const Job job = MakeJob(model, kRanks, 8);
  const StepSamples step = DrawVideos(9);
  uint64_t tokens = 0;
  for (const SampleLengths& lengths : step.lengths) tokens += lengths.llm_length;
  for (const DegreePolicy& policy : DegreePolicies()) {
    const StepFigures figures = FiguresOf(std::string(policy.name).c_str(), model, job, step);
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
    const StepFigures figures = FiguresOf(std::string(policy.name).c_str(), model, MakeJob(model, 8, 4),
                                          StepOf(std::vector<uint32_t>(8, 12000)));
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
  const StepFigures within = FiguresOf("regroup", model, MakeJob(model, 2, 2), step, machine);
  const StepFigures between = FiguresOf("regroup", model, MakeJob(model, 2, 1), step, machine);
  ASSERT_EQ(within.groups.size(), 1);
  EXPECT_EQ(within.groups[0].ranks.size(), 2);
  EXPECT_EQ(within.inter_node_bytes, 0);
  // Keys and values of 512 each in 28 layers, two bytes, of half the tokens, by both ranks.
  const double bytes = 2.0 * 2 * 28 * 512 * 10000;
  EXPECT_NEAR(between.inter_node_bytes, 2 * bytes, 1);
  const double compute = within.iteration_seconds - within.exchange_seconds;
  const double attention = 3 * 2.0 * 28 * 3584 * 20000.0 * 20000 / 2 / machine.peak_flops;
  machine.inter_node_bandwidth = 1e9;
  const StepFigures slow = FiguresOf("regroup", model, MakeJob(model, 2, 1), step, machine);
  EXPECT_NEAR(slow.exchange_seconds, 3 * bytes / 1e9 - attention, 1e-9);
  EXPECT_NEAR(slow.iteration_seconds, compute + slow.exchange_seconds, 1e-9);
}

TEST(StepModelDegrees, RefusesWhatItCannotModel) {
  const TrainingModel& model = *FindTrainingModel("internvl3-8b");
  Job job = MakeJob(model, 2, 2);
  const DegreePolicy& policy = *FindDegreePolicy("regroup");
  const auto refused = [&](const StepSamples& step, const Machine& machine) {
    return ModelDegrees(policy, job, step, model, machine).status();
  };
  EXPECT_EQ(refused(StepOf({1 << 30}), kMachine).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(StepOf({100}), {.memory_bytes = 0}).code(), absl::StatusCode::kInvalidArgument);
  job.pipeline_stages = 2;
  EXPECT_EQ(refused(StepOf({100}), kMachine).code(), absl::StatusCode::kInvalidArgument);
  job = MakeJob(*FindTrainingModel("mllm-10b"), 2, 2);  // with audio, which this model has not
  EXPECT_EQ(refused(StepOf({100}), kMachine).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FindDegreePolicy("best"), nullptr);
}

}  // namespace
}  // namespace evenkeel
