#include "reorder/pack_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

namespace evenkeel::reorder {
namespace {

// L2 of one phase: of the samples longer than capacity - k, none shares a bin with one of at least k; those
// longer than half the capacity share none with each other; the rest of at least k fills what they leave.
uint64_t MartelloToth(std::vector<uint32_t> lengths, double capacity) {
  std::sort(lengths.begin(), lengths.end());
  std::vector<double> sum(lengths.size() + 1, 0.0);
  for (size_t i = 0; i < lengths.size(); ++i) sum[i + 1] = sum[i] + lengths[i];
  const auto longer_than = [&](double bound) {  // index of the first one
    return static_cast<size_t>(
        std::partition_point(lengths.begin(), lengths.end(), [&](uint32_t l) { return l <= bound; }) -
        lengths.begin());
  };
  const size_t half = longer_than(capacity / 2);
  double best = static_cast<double>(lengths.size() - half);
  for (size_t i = 0; i < half; ++i) {
    if (lengths[i] == 0 || (i > 0 && lengths[i] == lengths[i - 1])) continue;
    const size_t alone = longer_than(capacity - lengths[i]);
    const double left = static_cast<double>(alone - half) * capacity - (sum[alone] - sum[half]);
    const double more = std::max(0.0, std::ceil((sum[half] - sum[i] - left) / capacity));
    best = std::max(best, static_cast<double>(lengths.size() - half) + more);
  }
  return static_cast<uint64_t>(best);
}

}  // namespace

uint64_t CommonDivisor(const std::vector<uint32_t>& lengths) {
  uint64_t divisor = 0;
  for (uint32_t length : lengths) divisor = std::gcd(divisor, uint64_t{length});
  return std::max<uint64_t>(1, divisor);
}

PackProblem MakePackProblem(const PackInput& input, const std::vector<uint64_t>& capacities) {
  PackProblem problem{.seed = input.seed, .iterations = std::max(1u, input.iterations)};
  problem.lengths.resize(input.phases.front().lengths.size());
  for (size_t i = 0; i < input.phases.size(); ++i) {
    const std::vector<uint32_t>& lengths = input.phases[i].lengths;
    const size_t p = static_cast<size_t>(input.phases[i].phase);
    for (size_t s = 0; s < lengths.size(); ++s) {
      problem.lengths[s][p] = lengths[s];
      problem.total[p] += lengths[s];
    }
    problem.capacity[p] = static_cast<double>(capacities[i]);
    problem.unit[p] = static_cast<double>(CommonDivisor(lengths));
  }
  return problem;
}

uint64_t FewestBins(const PackProblem& problem) {
  uint64_t fewest = problem.lengths.empty() ? 0 : 1;
  std::vector<uint32_t> lengths(problem.lengths.size());
  for (int p = 0; p < kNumPhases; ++p) {
    if (problem.total[p] == 0) continue;
    const double whole_units = std::floor(problem.capacity[p] / problem.unit[p]) * problem.unit[p];
    for (size_t s = 0; s < lengths.size(); ++s) lengths[s] = problem.lengths[s][p];
    fewest = std::max(fewest, MartelloToth(lengths, whole_units));
  }
  return fewest;
}

std::vector<uint32_t> LargestShareFirst(const PackProblem& problem, const PhaseLoads& whole) {
  PhaseLoads scale{};
  for (int p = 0; p < kNumPhases; ++p) scale[p] = whole[p] > 0 ? 1 / whole[p] : 0;
  struct Keyed {
    double largest, sum;
    uint32_t sample;
    bool operator<(const Keyed& other) const {
      return std::tuple(-largest, -sum, sample) < std::tuple(-other.largest, -other.sum, other.sample);
    }
  };
  std::vector<Keyed> keyed(problem.lengths.size());
  for (uint32_t s = 0; s < keyed.size(); ++s) {
    double largest = 0, sum = 0;
    for (int p = 0; p < kNumPhases; ++p) {
      const double share = problem.lengths[s][p] * scale[p];
      largest = std::max(largest, share), sum += share;
    }
    keyed[s] = {largest, sum, s};
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<uint32_t> order(keyed.size());
  std::transform(keyed.begin(), keyed.end(), order.begin(), [](const Keyed& entry) { return entry.sample; });
  return order;
}

}  // namespace evenkeel::reorder
