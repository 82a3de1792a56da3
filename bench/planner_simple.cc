// Point 10: kinds of problems for which one sort used to be better than a planner, next to what the simple methods give.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/planner_figures.h"
#include "core/max_over_mean.h"
#include "reorder/pack/pack.h"
#include "reorder/problem/balance_problem.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

reorder::BalanceInput MakeInput(std::vector<SampleLengths> samples, uint32_t ranks) {
  reorder::BalanceInput input{.ranks_per_node = 8};
  for (Phase phase : kUsualPhases) {
    reorder::BalancePhaseInput& in = input.phases.emplace_back();
    in.spec.phase = phase;
    for (uint32_t r = 0; r < ranks; ++r) in.spec.ranks.push_back(r);
  }
  input.step.lengths = std::move(samples);
  input.step.refs.resize(input.step.lengths.size());
  return input;
}

const reorder::BalancedPhase& VisionOf(const reorder::BalanceOutcome& outcome) {
  return *std::find_if(outcome.phases.begin(), outcome.phases.end(),
                       [](const reorder::BalancedPhase& phase) { return phase.phase == kVisionPhase; });
}

// The max/mean of the vision phase by the better of the two simple methods.
double Simple(reorder::BalanceInput input) {
  double least = 1e300;
  for (const char* algorithm : {"greedy_packed", "karmarkar_karp"}) {
    for (reorder::BalancePhaseInput& phase : input.phases) phase.spec.algorithm = algorithm;
    least = std::min(least, VisionOf(Value(reorder::SolveBalance(input))).max_over_mean);
  }
  return least;
}

void PrintManyItems(uint64_t seed, uint32_t images) {
  reorder::Random random(1000 * seed + images);
  std::vector<SampleLengths> samples = reorder::DrawOmniTrace(seed + 51, 1920);
  for (uint32_t i = 0; i < images; ++i) {
    const uint32_t patches = 500 + static_cast<uint32_t>(random.Below(1001));
    samples[7].items.push_back({Medium::kImage, {patches, patches, patches / 4}});
    samples[7].llm_length += patches / 4;
  }
  const reorder::BalanceInput input = MakeInput(std::move(samples), 64);
  const double start = ProcessorMs();
  reorder::BalanceOutcome outcome = Value(reorder::PlanBalance(input));
  const double ms = ProcessorMs() - start;
  if (const absl::Status measured = reorder::MeasureBalance(input, outcome); !measured.ok()) {
    std::cerr << measured << "\n", std::exit(1);
  }
  const std::string what = absl::StrCat("one sample of ", images, " images among 1,920 over 64 ranks: ");
  PrintFigure("10", what + "vision max/mean over the better of two simple methods",
              VisionOf(outcome).max_over_mean / Simple(input), Limit::kAtMost, 1.002);
  PrintFact("10", what + "ms", ms);
}

void PrintRoundRobin(uint64_t seed) {
  double worst = 0;
  for (uint64_t i = 0; i < 8; ++i) {
    reorder::BalanceInput input = MakeInput(reorder::DrawOmniTrace(100 * seed + i + 61, 128 * 30), 128);
    for (uint32_t s = 0; s < 128 * 30; ++s) input.llm_rank.push_back(s % 128);
    const reorder::BalancedPhase vision = VisionOf(Value(reorder::SolveBalance(input)));
    worst = std::max(worst, static_cast<double>(vision.inter_node_rows) /
                                static_cast<double>(std::max<uint64_t>(1, vision.inter_node_rows_bound)));
  }
  PrintFigure("10", "round robin, 30 per rank, 8 steps: worst inter-node rows of vision over the bound",
              worst, Limit::kAtMost, 1.25);
}

void PrintTwoSizes(uint64_t seed) {
  for (uint32_t per_rank : {16u, 30u}) {
    reorder::Random random(seed + per_rank);
    std::vector<SampleLengths> samples(size_t{128} * per_rank);
    for (SampleLengths& sample : samples) {
      const uint32_t patches = random.Below(10) < 3 ? 16384 : 256;
      sample.llm_length = random.Length(6, 1, 16, 8192) + patches / 4;
      sample.items.push_back({Medium::kImage, {patches, patches, patches / 4}});
    }
    const reorder::BalanceInput input = MakeInput(std::move(samples), 128);
    PrintFigure("10",
                absl::StrCat("images of two sizes, 128 ranks, ", per_rank,
                             " per rank: vision max/mean over the better of two simple methods"),
                VisionOf(Value(reorder::SolveBalance(input))).max_over_mean / Simple(input), Limit::kAtMost,
                1.002);
  }
}

void PrintEvenness(uint64_t seed) {
  reorder::BalanceInput input = MakeInput(reorder::DrawOmniTrace(seed + 71, 64 * 16), 64);
  for (reorder::BalancePhaseInput& phase : input.phases)
    phase.spec.equal_counts = phase.spec.phase == Phase::kLlm;
  const reorder::BalancedPhase llm = Value(reorder::SolveBalance(input)).phases[0];
  PrintFact("10", "llm with equal counts, 64 ranks, 16 per rank: max/mean over the reachable",
            llm.max_over_mean / llm.reachable);
  input = MakeInput(reorder::DrawOmniTrace(seed + 72, 128 * 60), 128);
  for (reorder::BalancePhaseInput& phase : input.phases) phase.spec.tolerance = 0;
  const reorder::BalancedPhase vision = VisionOf(Value(reorder::SolveBalance(input)));
  PrintFact("10", "tolerance 0, 128 ranks, 60 per rank: vision max/mean, rows to another rank",
            absl::StrFormat(
                "%.5f, %.1f %%", vision.max_over_mean,
                100.0 * static_cast<double>(vision.rows_to_other_rank) / static_cast<double>(vision.rows)));
}

void PrintTextAlone(uint64_t seed) {
  reorder::Random random(seed + 81);
  reorder::PackInput input;
  reorder::PackPhase& llm = input.phases.emplace_back();
  llm.capacity = 4096;
  for (int i = 0; i < 20000; ++i) llm.lengths.push_back(random.Length(6, 1, 16, 4096));
  const reorder::PackFigures ours = MeasurePack(input, Value(reorder::Pack(input)));
  input.algorithm = "best_fit_decreasing";
  const reorder::PackFigures fitted = MeasurePack(input, Value(reorder::Pack(input)));
  PrintFigure("10", "20,000 texts packed to 4,096: fill over best fit's", ours.fill / fitted.fill,
              Limit::kAtLeast, 1);
  PrintFigure("10", "the same: distribution ratio less best fit's",
              ours.phases[0].distribution_ratio - fitted.phases[0].distribution_ratio, Limit::kAtMost, 0);
}

// A few long documents among chats, with attention in the cost and a bound on the tokens of a rank.
void PrintCapacity(uint64_t seed) {
  reorder::Random random(seed + 91);
  std::vector<SampleLengths> samples(64 * 60);
  double tokens = 0;
  for (SampleLengths& sample : samples) {
    sample.llm_length = random.Below(50) == 0 ? 32768 + static_cast<uint32_t>(random.Below(32769))
                                              : random.Length(5.7, 0.8, 1, 4096);
    tokens += sample.llm_length;
  }
  reorder::BalanceInput input = MakeInput(std::move(samples), 64);
  input.phases.resize(1);
  input.phases[0].spec.cost = {.linear = 1, .quadratic = 1.0 / 24576};
  const double free = Value(reorder::SolveBalance(input)).phases[0].max_over_mean;
  for (const double room : {1.5, 1.1}) {
    input.phases[0].spec.capacity = static_cast<uint64_t>(room * tokens / 64);
    PrintFigure("10",
                absl::StrCat("documents among chats, quadratic cost, at most ", room,
                             " of the mean tokens a rank: max/mean over that without the bound"),
                Value(reorder::SolveBalance(input)).phases[0].max_over_mean / free, Limit::kAtMost, 1.02);
  }
}

// Ranks that meet at the end of a step alone.
void PrintSums(uint64_t seed) {
  reorder::BalanceInput input = MakeInput(reorder::DrawOmniTrace(seed + 95, 128 * 16), 128);
  for (reorder::BalancePhaseInput& phase : input.phases) {
    const bool is_llm = phase.spec.phase == Phase::kLlm;
    phase.spec.cost = {.linear = is_llm ? 1 : 0.12};
    if (!is_llm) phase.spec.algorithm = "none";
  }
  input.phases_add_up = true;
  std::vector<double> sums, load(128, 0);
  for (const SampleLengths& sample : input.step.lengths) {
    sums.push_back(sample.llm_length);
    for (const SampleItem& item : sample.items) sums.back() += 0.12 * item.lengths.cost_length;
  }
  std::sort(sums.rbegin(), sums.rend());
  for (double sum : sums) *std::min_element(load.begin(), load.end()) += sum;
  PrintFigure("10", "sums of all phases, 128 ranks, 16 per rank: max/mean over longest first's",
              Value(reorder::SolveBalance(input)).max_over_mean_of_step / MaxOverMean(load), Limit::kAtMost,
              1.002);
}

}  // namespace

void PrintSimpleMethods(uint64_t seed) {
  for (uint32_t images : {2000u, 16000u, 100000u}) PrintManyItems(seed, images);
  PrintRoundRobin(seed);
  PrintTwoSizes(seed);
  PrintEvenness(seed);
  PrintCapacity(seed);
  PrintSums(seed);
  PrintTextAlone(seed);
}
