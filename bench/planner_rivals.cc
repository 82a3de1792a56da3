// Point 11: the planner next to other projects' own code, on the same lengths: verl's Karmarkar-Karp, and the packing of
// TRL, LLaMA-Factory and axolotl. What they answer is measured here, as ours is.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/planner_figures.h"
#include "reorder/balance/balance.h"
#include "reorder/pack/pack.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/omni_trace.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

struct RivalProblem {
  uint64_t bound = 0;  // groups to balance over, or the capacity of a bin
  std::vector<uint32_t> lengths;
};

// [problems][lengths] The group of each length by `method`. Ends the program if the rival's code does not run.
std::vector<std::vector<uint32_t>> AskRival(const std::string& folder, const std::string& method,
                                            const std::vector<RivalProblem>& problems) {
  std::ostringstream input;
  for (const RivalProblem& problem : problems) {
    input << problem.bound;
    for (uint32_t length : problem.lengths) input << " " << length;
    input << "\n";
  }
  const char* python = std::getenv("EVENKEEL_RIVALS_PYTHON");
  const std::string arguments = absl::StrCat("planner_rivals.py '", folder, "' ", method);
  std::istringstream lines(
      RunScript(python != nullptr ? python : "/usr/bin/python3", arguments, input.str()));
  std::vector<std::vector<uint32_t>> groups;
  for (const RivalProblem& problem : problems) {
    std::string line;
    std::getline(lines, line);
    std::istringstream words(line);
    std::vector<uint32_t>& group = groups.emplace_back();
    for (uint32_t g; words >> g;) group.push_back(g);
    if (group.size() != problem.lengths.size()) std::cerr << arguments << ": a wrong answer\n", std::exit(1);
  }
  return groups;
}

uint32_t DrawLength(reorder::Random& random, int kind) {
  switch (kind) {
    case 0:  // texts
      return random.Length(6, 1, 16, 4096);
    case 1:  // any
      return 1 + static_cast<uint32_t>(random.Below(4096));
    case 2:  // tiles
      return 256 * (1 + static_cast<uint32_t>(random.Below(16)));
    case 3:  // short ones, and a few that nearly fill
      return static_cast<uint32_t>(random.Below(10) == 0 ? 3000 + random.Below(1097) : 1 + random.Below(600));
    default:  // heavy tail
      return static_cast<uint32_t>(std::min(4096.0, 16 / (1.0001 - random.Uniform())));
  }
}
constexpr int kKinds = 5;

// Where ranks take any number of units, and as many on each: the heaviest rank of ours over verl's.
void PrintVerl(const std::string& folder, uint64_t seed) {
  reorder::Random random(seed + 111);
  std::vector<RivalProblem> problems;
  for (int i = 0; i < 210; ++i) {
    const uint64_t ranks = 2 + random.Below(31);
    RivalProblem& problem = problems.emplace_back(RivalProblem{.bound = ranks});
    problem.lengths.resize(ranks * (2 + random.Below(19)));
    for (uint32_t& length : problem.lengths) length = DrawLength(random, i % kKinds);
  }
  for (const bool equal : {false, true}) {
    const auto theirs = AskRival(folder, equal ? "verl_equal_size" : "verl", problems);
    double worst = 0;
    int lighter = 0, heavier = 0;
    for (size_t i = 0; i < problems.size(); ++i) {
      const std::vector<reorder::Load> cost(problems[i].lengths.begin(), problems[i].lengths.end());
      const reorder::PhaseRanks ranks = reorder::MakeRanks(static_cast<uint32_t>(problems[i].bound), 8);
      const reorder::BalanceProblem problem{
          .ranks = &ranks, .cost = cost, .tolerance = 0, .equal_counts = equal};
      const auto ours = reorder::HeaviestRank(problem, reorder::BalanceWithoutMoving(problem));
      const auto rival = reorder::HeaviestRank(problem, theirs[i]);
      worst = std::max(worst, static_cast<double>(ours) / static_cast<double>(rival) - 1);
      lighter += ours < rival;
      heavier += ours > rival;
    }
    const std::string what =
        absl::StrCat("verl's karmarkar_karp", equal ? " with equal_size" : "", ", 210 problems: ");
    PrintFigure("11", what + "our heaviest rank (tolerance 0) over its, less 1, the worst", worst,
                Limit::kAtMost, 1e-4);
    PrintFact("11", what + "ours is lighter, heavier", absl::StrFormat("%d, %d", lighter, heavier));
  }
}

// `packing` with its bins in another order: the fullest first, then shuffled. Who answers with the full bins first has the
// others in a last step that is not full, which no ratio counts; trainers shuffle what is packed.
reorder::Packing Dealt(const reorder::PackInput& input, const reorder::Packing& packing, uint64_t seed) {
  std::vector<uint64_t> load(packing.num_bins, 0);
  for (size_t s = 0; s < packing.bin.size(); ++s) load[packing.bin[s]] += input.phases[0].lengths[s];
  std::vector<uint32_t> bins(packing.num_bins);
  std::iota(bins.begin(), bins.end(), 0);
  std::stable_sort(bins.begin(), bins.end(), [&](uint32_t a, uint32_t b) { return load[a] > load[b]; });
  reorder::Random random(seed);
  for (size_t left = bins.size(); left > 1; --left) std::swap(bins[left - 1], bins[random.Below(left)]);
  std::vector<uint32_t> place(bins.size());
  for (uint32_t i = 0; i < bins.size(); ++i) place[bins[i]] = i;
  reorder::Packing dealt = packing;
  for (uint32_t& bin : dealt.bin) bin = place[bin];
  return dealt;
}

// The mean over shuffles, the same for all who have as many bins.
double Ratio(const reorder::PackInput& input, const reorder::Packing& packing) {
  constexpr int kShuffles = 16;
  double sum = 0;
  for (uint64_t seed = 0; seed < kShuffles; ++seed) {
    sum += MeasurePack(input, Dealt(input, packing, seed)).phases[0].distribution_ratio;
  }
  return sum / kShuffles;
}

// Texts, any lengths, tiles, short ones among some that nearly fill, and a heavy tail.
void PrintPacking(const std::string& folder, uint64_t seed) {
  reorder::Random random(seed + 121);
  std::vector<RivalProblem> problems;
  for (int kind = 0; kind < kKinds; ++kind) {
    RivalProblem& problem = problems.emplace_back(RivalProblem{.bound = 4096});
    problem.lengths.resize(10000);
    for (uint32_t& length : problem.lengths) length = DrawLength(random, kind);
  }
  for (const char* method : {"trl", "llama_factory", "axolotl"}) {
    const auto theirs = AskRival(folder, method, problems);
    double fill = 1e300, ratio = -1e300;
    for (size_t k = 0; k < problems.size(); ++k) {
      reorder::PackInput input;
      input.phases.push_back({.capacity = 4096, .lengths = problems[k].lengths});
      const reorder::Packing ours = Value(reorder::Pack(input));
      const reorder::Packing rival{.num_bins = *std::max_element(theirs[k].begin(), theirs[k].end()) + 1,
                                   .bin = theirs[k],
                                   .capacities = {4096}};
      if (const absl::Status status = PackCheck(input, rival); !status.ok())
        std::cerr << status << "\n", std::exit(1);
      fill = std::min(fill, MeasurePack(input, ours).fill / MeasurePack(input, rival).fill);
      ratio = std::max(ratio, Ratio(input, ours) - Ratio(input, rival));
    }
    const std::string what = absl::StrCat(method, ", five kinds of 10,000 sequences to 4,096: our ");
    PrintFigure("11", what + "fill over its, the least", fill, Limit::kAtLeast, 1);
    // Best fit and first fit, longest first, leave a few tokens more or less in the last bins.
    PrintFigure("11", what + "distribution ratio less its, the most", ratio, Limit::kAtMost, 1e-5);
  }
}

}  // namespace

void PrintRivals(uint64_t seed) {
  const char* folder = std::getenv("EVENKEEL_RIVALS");
  if (folder == nullptr) {
    PrintFact("11", "other projects' own code",
              "not run: EVENKEEL_RIVALS names no folder (planner_rivals.py --install)");
    return;
  }
  PrintVerl(folder, seed);
  PrintPacking(folder, seed);
}
