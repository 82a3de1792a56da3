// Rows of the table of figures that no time is in: rules that every solution keeps, optima of small problems,
// and the directions of the papers' claims.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/planner_figures.h"
#include "reorder/balance.h"
#include "reorder/context_parallel.h"
#include "reorder/microbatch_order.h"
#include "reorder/pack.h"
#include "reorder/policies.h"
#include "reorder/step_model.h"
#include "reorder/step_model_degrees.h"
#include "tests/reorder/exhaustive.h"
#include "tests/reorder/make_ranks.h"
#include "tests/reorder/pipeline_problems.h"
#include "tests/reorder/random_packing.h"
#include "tests/reorder/random_problem.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

constexpr uint64_t kProblems = 10000;
constexpr uint64_t kFirstSeed = 1000000;  // those of the tests begin at 0

// Of ten thousand problems, those whose answer is wrong: `answer` is the error of the solver and what the
// check of its solution says.
struct Answer {
  absl::Status solved, checked;
};
void PrintBroken(const std::string& kind, const std::function<Answer(uint64_t seed)>& answer) {
  int solved = 0, broken = 0;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kProblems; ++seed) {
    const Answer given = answer(seed);
    solved += given.solved.ok();
    const bool refused = absl::IsInvalidArgument(given.solved) || absl::IsResourceExhausted(given.solved);
    broken += given.solved.ok() ? !given.checked.ok() : !refused;
  }
  PrintFigure("1",
              absl::StrCat("10,000 random problems of ", kind, ", ", solved,
                           " with a solution: those that break a rule, or end in an error without a name"),
              broken, Limit::kAtMost, 0);
}

Answer Balance(uint64_t seed) {
  const Below below = BelowFrom(seed);
  RandomProblem problem = DrawProblem(below);
  const auto plan = DrawPlan(below, problem);
  if (!plan.ok()) return {.solved = plan.status()};
  return {.checked = PlanCheck(problem.job, problem.step, *plan)};
}

Answer Packs(uint64_t seed) {
  const PackInput input = DrawPackInput(BelowFrom(seed));
  const auto packing = Pack(input);
  return packing.ok() ? Answer{.checked = PackCheck(input, *packing)} : Answer{.solved = packing.status()};
}

Answer Groups(uint64_t seed) {
  const ContextParallelInput input = DrawContextParallelInput(BelowFrom(seed));
  const auto plan = PlanContextParallel(input);
  return plan.ok() ? Answer{.checked = ContextParallelCheck(input, *plan)} : Answer{.solved = plan.status()};
}

Answer Orders(uint64_t seed) {
  Random random(seed);
  const OrderProblem problem{.pipeline = DrawPipeline(random, 5, 14),
                             .algorithm = seed % 3 == 0 ? "disttrain" : "local_search",
                             .seed = seed,
                             .iterations = 200};
  const auto outcome = SolveOrder(problem);
  if (!outcome.ok()) return {.solved = outcome.status()};
  std::vector<uint32_t> sorted = outcome->order;
  std::sort(sorted.begin(), sorted.end());
  const double time = outcome->timeline.iteration_time;
  const bool kept = sorted == reorder::InOrder(problem.pipeline.num_microbatches()) &&
                    time >= outcome->bound * (1 - 1e-12) &&
                    (problem.algorithm == "disttrain" || time <= outcome->given_time);
  return {.checked = kept ? absl::OkStatus() : absl::InternalError("order")};
}

void PrintSmallPadded() {
  Random random(51);
  int other = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(3));
    std::vector<reorder::Load> cost(1 + random.Below(7));
    for (reorder::Load& c : cost) c = 1 + static_cast<reorder::Load>(random.Below(i % 2 == 0 ? 8 : 1000));
    const reorder::PhaseRanks where = reorder::MakeRanks(ranks, 8);
    const reorder::BalanceProblem problem{.ranks = &where, .batching = Batching::kPadded, .cost = cost};
    other += reorder::Padded(cost, reorder::GreedyPadded().Assign(problem), ranks) !=
             reorder::Exhaustive(cost, ranks, reorder::Padded);
  }
  PrintFigure("5", "binary_search_padded: of 1,000 small problems, those not solved as all placements show",
              other, Limit::kAtMost, 0);
}

// A scene of a paper: which model, where its steps come from.
struct Scene {
  const char* model;
  uint32_t ranks, per_rank, stages;
  uint64_t microbatch_tokens;
};

Job JobOf(const Scene& scene) {
  Job job{.ranks_per_node = 8, .pipeline_stages = scene.stages};
  job.microbatch.capacity_tokens = scene.microbatch_tokens;
  for (const PhaseModel& model : FindTrainingModel(scene.model)->phases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = model.phase;
    for (uint32_t r = 0; r < scene.ranks; ++r) spec.ranks.push_back(r);
    if (scene.stages > 1) {
      spec.runs = Runs::kOncePerMicrobatch;
    } else if (model.phase == Phase::kAudio) {
      spec.batching = Batching::kPadded;
    }
  }
  return Value(WithCostsOf(*FindTrainingModel(scene.model), job));
}

constexpr uint64_t kSteps = 8;

// Seconds of eight steps by every policy.
std::map<std::string, double> Compare(const Scene& scene) {
  const Job job = JobOf(scene);
  std::map<std::string, double> seconds;
  for (uint64_t step = 0; step < kSteps; ++step) {
    StepSamples samples{.step = step};
    samples.lengths = DrawOmniTrace(9100 + step, size_t{scene.ranks} * scene.per_rank);
    for (SampleLengths& sample : samples.lengths) {
      if (scene.microbatch_tokens > 0 && sample.llm_length > scene.microbatch_tokens)
        sample = {.llm_length = 64};
      samples.refs.push_back({0, 0, samples.refs.size()});
    }
    for (const Policy& policy : Policies()) {
      const Plan plan = Value(PlanByPolicy(policy, job, samples, {}));
      seconds[std::string(policy.name)] +=
          Value(ModelStep(job, plan, *FindTrainingModel(scene.model), {})).iteration_seconds;
    }
  }
  return seconds;
}

// Seconds of eight steps of videos by every policy of degrees: DHP 6.1's 64 accelerators and 512 sequences.
std::map<std::string, double> CompareDegrees(const char* model_name) {
  const TrainingModel& model = *FindTrainingModel(model_name);
  const Job job =
      JobOf({.model = model_name, .ranks = 64, .per_rank = 8, .stages = 1, .microbatch_tokens = 0});
  std::map<std::string, double> seconds;
  for (uint64_t step = 0; step < kSteps; ++step) {
    Random random(9200 + step);
    StepSamples samples{.step = step};
    for (int s = 0; s < 512; ++s) {
      const uint32_t rows =
          random.Length(1.6, 0.95, 1, 120) * (220 + static_cast<uint32_t>(random.Below(700)));
      samples.lengths.push_back({.llm_length = rows + random.Length(4.2, 0.8, 8, 2000),
                                 .items = {{Medium::kVideo, {4 * rows, 4 * rows, rows}}}});
      samples.refs.push_back({0, 0, samples.refs.size()});
    }
    for (const DegreePolicy& policy : DegreePolicies()) {
      seconds[std::string(policy.name)] +=
          Value(ModelDegrees(policy, job, samples, model, {.recompute = false})).iteration_seconds;
    }
  }
  return seconds;
}

void PrintFaster(const std::string& claim, const char* slow, const char* fast,
                 std::map<std::string, double> seconds) {
  PrintFigure("9", absl::StrCat(claim, ": time of ", slow, " over that of ", fast),
              seconds[slow] / seconds[fast], Limit::kAtLeast, 1);
}

}  // namespace

void PrintRules() {
  PrintBroken("balance", Balance);
  PrintBroken("pack", Packs);
  PrintBroken("context_parallel", Groups);
  PrintBroken("order", Orders);
  PrintSmallPadded();
}

void PrintClaims() {
  const auto once = Compare({.model = "mllm-10b", .ranks = 32, .per_rank = 60, .stages = 1});
  PrintFaster("mllm-10b, 32 ranks, audio padded", "none", "llm_only", once);
  PrintFaster("the same", "llm_only", "post_balancing", once);
  PrintFaster("the same", "all_packed", "post_balancing", once);
  PrintFaster("the same", "all_padded", "post_balancing", once);
  const auto pipelined =
      Compare({.model = "mllm-84b", .ranks = 4, .per_rank = 160, .stages = 4, .microbatch_tokens = 16384});
  PrintFaster("mllm-84b, pipelines of 4 stages", "random", "disttrain", pipelined);
  PrintFaster("the same", "disttrain", "balance_without_moving", pipelined);
  for (const char* model : {"internvl3-8b", "qwen3-vl-8b"}) {
    const auto degrees = CompareDegrees(model);
    PrintFaster(absl::StrCat(model, ", 512 videos over 64 ranks"), "megatron", "dhp", degrees);
    PrintFaster("the same", "static_power_of_two", "dhp", degrees);
    PrintFaster("the same", "dhp", "regroup", degrees);
  }
}
