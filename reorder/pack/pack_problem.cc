// Packing problems in columns, the orders of samples and bins, and the evenness of bins.
#include "reorder/pack/pack_problem.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "reorder/keyed_shuffle.h"

namespace evenkeel::reorder {
namespace {

// Of the fullest phase.
double ShareOf(const PackProblem& problem, const std::vector<uint32_t>& bin) {
  double most = 0;
  for (int p = 0; p < problem.num_phases; ++p) {
    double load = 0;
    for (uint32_t sample : bin) load += problem.lengths[sample][p];
    if (problem.capacity[p] > 0) most = std::max(most, load / problem.capacity[p]);
  }
  return most;
}

}  // namespace

uint64_t CommonDivisor(const std::vector<uint32_t>& lengths) {
  uint64_t divisor = 0;
  for (uint32_t length : lengths) {
    divisor = std::gcd(divisor, uint64_t{length});
    if (divisor == 1) break;
  }
  return std::max<uint64_t>(1, divisor);
}

PackProblem MakePackProblem(const PackInput& input, const std::vector<uint64_t>& capacities) {
  PackProblem problem{
      .seed = input.seed, .iterations = std::max(1u, input.iterations), .devices = input.devices};
  for (const PackPhase& phase : input.phases) {
    problem.num_phases = std::max(problem.num_phases, phase.phase.number() + 1);
  }
  problem.lengths = LengthTable(problem.num_phases);
  problem.lengths.resize(input.phases.front().lengths.size());
  for (size_t i = 0; i < input.phases.size(); ++i) {
    const std::vector<uint32_t>& lengths = input.phases[i].lengths;
    const size_t p = input.phases[i].phase.number();
    for (size_t s = 0; s < lengths.size(); ++s) {
      problem.lengths[s][p] = lengths[s];
      problem.total[p] += lengths[s];
    }
    problem.capacity[p] = static_cast<double>(capacities[i]);
    problem.unit[p] = static_cast<double>(CommonDivisor(lengths));
  }
  return problem;
}

std::vector<uint32_t> LargestShareFirst(const PackProblem& problem, const PhaseLoads& whole) {
  PhaseLoads scale{};
  for (int p = 0; p < problem.num_phases; ++p) scale[p] = whole[p] > 0 ? 1 / whole[p] : 0;
  std::vector<std::tuple<float, float, uint32_t>> keyed(problem.lengths.size());  // (-most, -sum, number)
  for (uint32_t s = 0; s < keyed.size(); ++s) {
    double most = 0, sum = 0;
    for (int p = 0; p < problem.num_phases; ++p) {
      const double share = problem.lengths[s][p] * scale[p];
      most = std::max(most, share), sum += share;
    }
    keyed[s] = {-static_cast<float>(most), -static_cast<float>(sum), s};
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<uint32_t> order;
  for (const auto& [most, sum, sample] : keyed) order.push_back(sample);
  return order;
}

std::vector<uint32_t> PlacesInSteps(const Bins& bins, uint64_t seed) {
  // A separate key, so that the order of bins is independent of the random numbers that formed them.
  constexpr uint64_t kOrderKey = 0x62696e206f726472ull;
  std::vector<uint64_t> by_first(bins.size());
  for (uint32_t b = 0; b < bins.size(); ++b) {
    by_first[b] = Keyed(*std::min_element(bins[b].begin(), bins[b].end()), b);
  }
  std::sort(by_first.begin(), by_first.end());
  KeyedNumbers numbers(seed ^ kOrderKey);
  const std::vector<uint32_t> shuffled = ShuffledOrder(static_cast<uint32_t>(bins.size()), numbers);
  std::vector<uint32_t> place(bins.size());
  for (size_t i = 0; i < by_first.size(); ++i) place[NumberOf(by_first[i])] = shuffled[i];
  return place;
}

std::vector<PackedPhase> MeasureBins(const PackProblem& problem, const Bins& bins) {
  const std::vector<uint32_t> place = PlacesInSteps(bins, problem.seed);
  std::vector<PackedPhase> measured(static_cast<size_t>(problem.num_phases));
  std::vector<uint64_t> load(bins.size());
  std::vector<uint32_t> longest(bins.size());
  for (int p = 0; p < problem.num_phases; ++p) {
    if (problem.total[p] == 0) continue;
    for (size_t b = 0; b < bins.size(); ++b) {
      uint64_t sum = 0;
      uint32_t most = 0;
      for (uint32_t sample : bins[b]) {
        sum += problem.lengths[sample][p], most = std::max(most, problem.lengths[sample][p]);
      }
      load[place[b]] = sum, longest[place[b]] = most;
    }
    MeasureSteps(load, longest, problem.devices, problem.unit[p], {}, measured[p]);
  }
  return measured;
}

void SplitInto(const PackProblem& problem, size_t count, Bins& bins) {
  if (bins.size() >= count) return;
  std::priority_queue<std::pair<double, size_t>> fullest;  // (share, bin), of those that can be split
  const auto add = [&](size_t bin) {
    if (bins[bin].size() > 1) fullest.emplace(ShareOf(problem, bins[bin]), bin);
  };
  for (size_t b = 0; b < bins.size(); ++b) add(b);
  for (; bins.size() < count && !fullest.empty(); add(bins.size() - 1)) {
    const size_t split = fullest.top().second;
    fullest.pop();
    const auto middle = bins[split].begin() + static_cast<ptrdiff_t>(bins[split].size() / 2);
    std::vector<uint32_t> half(middle, bins[split].end());
    bins[split].erase(middle, bins[split].end());
    bins.push_back(std::move(half));
    add(split);
  }
}

}  // namespace evenkeel::reorder
