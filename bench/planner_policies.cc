// Rows of the table of figures: who is faster, by the model of a step. The directions of the papers' claims,
// each on its own kind of data; figures of a model, no times.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "advise/policies.h"
#include "advise/step_model.h"
#include "bench/planner_figures.h"
#include "tests/advise/video_runs.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

// A scene of a paper: which model, where its steps come from.
struct Scene {
  const char* model;
  uint32_t ranks, per_rank, stages;
  uint64_t microbatch_tokens;
};

Job JobOf(const Scene& scene) {
  Job job{.ranks_per_node = 8, .pipeline_stages = scene.stages};
  job.microbatch.capacity_tokens = scene.microbatch_tokens;
  for (const advise::PhaseModel& model : advise::FindTrainingModel(scene.model)->phases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = model.phase;
    for (uint32_t r = 0; r < scene.ranks; ++r) spec.ranks.push_back(r);
    if (scene.stages > 1) {
      spec.runs = Runs::kOncePerMicrobatch;
    } else if (model.phase == kAudioPhase) {
      spec.batching = Batching::kPadded;
    }
  }
  return Value(advise::WithCostsOf(*advise::FindTrainingModel(scene.model), job));
}

constexpr uint64_t kSteps = 8;

// Seconds of eight steps by every policy.
std::map<std::string, double> Compare(const Scene& scene, uint64_t seed) {
  const Job job = JobOf(scene);
  std::map<std::string, double> seconds;
  for (uint64_t step = 0; step < kSteps; ++step) {
    StepSamples samples{.step = step};
    samples.lengths = reorder::DrawOmniTrace(9100 + 100 * seed + step, size_t{scene.ranks} * scene.per_rank);
    for (SampleLengths& sample : samples.lengths) {
      if (scene.microbatch_tokens > 0 && sample.llm_length > scene.microbatch_tokens)
        sample = {.llm_length = 64};
      samples.refs.push_back({0, 0, samples.refs.size()});
    }
    for (const advise::Policy& policy : advise::Policies()) {
      const Plan plan = Value(advise::PlanByPolicy(policy, job, samples, {}));
      seconds[std::string(policy.name)] +=
          Value(advise::ModelStep(job, plan, *advise::FindTrainingModel(scene.model), {})).iteration_seconds;
    }
  }
  return seconds;
}

void PrintFaster(const std::string& claim, const char* slow, const char* fast,
                 const std::map<std::string, double>& seconds) {
  PrintFigure("9", absl::StrCat(claim, ": time of ", slow, " over that of ", fast),
              seconds.at(slow) / seconds.at(fast), Limit::kAtLeast, 1);
}

// DHP 6.2: six models on a data set, the best of the trainers' static degrees over dynamic ones.
void PrintDegrees(const advise::VideoSet& set, uint64_t seed) {
  static constexpr const char* kModels[] = {"internvl3-2b", "internvl2.5-4b", "internvl3-8b",
                                            "qwen3-vl-2b",  "qwen3-vl-4b",    "qwen3-vl-8b"};
  constexpr int kDegreeSteps = 5;
  double dhp = 1, ours = 1, hindsight = 1;
  int dhp_wins = 0, ours_wins = 0;
  for (const char* model : kModels) {
    auto seconds = Value(advise::SecondsOfDegrees(model, set, seed + 1, kDegreeSteps, advise::DhpMachine()));
    const double trainers = std::min(seconds["megatron"], seconds["deepspeed"]);
    dhp *= trainers / seconds["dhp"], ours *= trainers / seconds["regroup"];
    hindsight *= std::min(seconds["static"], seconds["static_power_of_two"]) / seconds["regroup"];
    dhp_wins += seconds["dhp"] < trainers, ours_wins += seconds["regroup"] < trainers;
  }
  const auto mean = [&](double product) { return std::pow(product, 1.0 / std::size(kModels)); };
  const std::string claim =
      absl::StrCat(set.name, ", six models: static degrees of the better trainer over ");
  PrintFigure("9", absl::StrCat(claim, "dhp's, mean (dhp is faster with ", dhp_wins, " of 6)"), mean(dhp),
              Limit::kAtLeast, 1);
  PrintFigure("9", absl::StrCat(claim, "regroup's, mean (faster with ", ours_wins, ")"), mean(ours),
              Limit::kAtLeast, 1);
  PrintFigure("9",
              absl::StrCat(set.name,
                           ", six models: the best static degree of every step, in hindsight, over "
                           "regroup's, mean"),
              mean(hindsight), Limit::kAtLeast, 1);
}

}  // namespace

void PrintClaims(uint64_t seed) {
  const auto once = Compare({.model = "mllm-10b", .ranks = 32, .per_rank = 60, .stages = 1}, seed);
  PrintFaster("mllm-10b, 32 ranks, audio padded", "none", "llm_only", once);
  PrintFaster("the same", "llm_only", "post_balancing", once);
  PrintFaster("the same", "all_packed", "post_balancing", once);
  PrintFaster("the same", "all_padded", "post_balancing", once);
  PrintFaster("the same", "post_balancing", "balance_without_moving", once);
  const auto pipelined = Compare(
      {.model = "mllm-84b", .ranks = 4, .per_rank = 160, .stages = 4, .microbatch_tokens = 16384}, seed);
  PrintFaster("mllm-84b, pipelines of 4 stages", "random", "disttrain", pipelined);
  PrintFaster("the same", "disttrain", "balance_without_moving", pipelined);
  for (const advise::VideoSet& set : advise::VideoSets()) PrintDegrees(set, seed);
}
