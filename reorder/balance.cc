#include "reorder/balance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "reorder/radix_sort.h"

namespace evenkeel::reorder {

std::span<const Balancer* const> Balancers() {
  static const Balancer* const kBalancers[] = {&BalanceWithoutMoving(),
                                               &GreedyPacked(),
                                               &GreedyPadded(),
                                               &GreedyQuadratic(),
                                               &GreedyPaddedAttention(),
                                               &IntraMicrobatch(),
                                               &KarmarkarKarp(),
                                               &NodeWise(),
                                               &None()};
  return kBalancers;
}

Scale::Scale(double total) {
  if (!(total > 0)) return;
  int exponent = 0;
  std::frexp(total, &exponent);  // total < 2^exponent
  factor_ = std::ldexp(1.0, 51 - exponent);
}

const Balancer* FindBalancer(std::string_view name) {
  if (name == "binary_search_padded") return &GreedyPadded();  // another name of the same
  for (const Balancer* balancer : Balancers()) {
    if (balancer->name() == name) return balancer;
  }
  return nullptr;
}

CostTotals TotalsOf(std::span<const Load> cost) {
  CostTotals totals;
  for (Load c : cost) {
    totals.sum += c;
    totals.dearest = std::max(totals.dearest, c);
  }
  return totals;
}

Load LeastDearestRank(std::span<const Load> cost, size_t ranks, double tolerance) {
  return LeastDearestRank(cost, TotalsOf(cost), ranks, tolerance);
}

Load LeastDearestRank(std::span<const Load> cost, const CostTotals& totals, size_t ranks, double tolerance) {
  const Load num_ranks = static_cast<Load>(ranks), mean = (totals.sum + num_ranks - 1) / num_ranks;
  const Load least = std::max(totals.dearest, mean);
  const Load tolerated = least + static_cast<Load>(static_cast<double>(least) * tolerance);
  Load unit = 0;
  for (Load c : cost) {
    if (unit == 0 || c % unit != 0) unit = std::gcd(unit, c);
    if (unit > 0 && unit <= tolerated - mean) return least;  // after a few costs that have little in common
  }
  const Load rounded = unit == 0 ? 0 : (mean + unit - 1) / unit * unit;
  return rounded <= tolerated ? least : rounded;
}

Load DearestRank(const BalanceProblem& problem, std::span<const uint32_t> rank) {
  std::vector<Load> load(problem.ranks->size(), 0);
  for (size_t i = 0; i < rank.size(); ++i) load[rank[i]] += problem.cost[i];
  return *std::max_element(load.begin(), load.end());
}

std::vector<uint32_t> DearestFirst(std::span<const Load> key) {
  Load largest = 0;
  uint64_t all = 0;
  for (Load value : key) largest = std::max(largest, value), all |= static_cast<uint64_t>(value);
  std::vector<uint32_t> order(key.size());
  // Bits that none has need no sorting: where costs are lengths, scaled, few are left.
  const int without = all == 0 ? 0 : std::countr_zero(all);
  const int index_bits = std::bit_width(key.size());
  const int key_bits = std::bit_width(static_cast<uint64_t>(largest) >> without);
  if (index_bits + key_bits > 64) {
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(key[b], a) < std::pair(key[a], b); });
    return order;
  }
  // What is missing to the largest, then the index, in one word.
  Workspace memory(2 * key.size() * sizeof(uint64_t));
  std::span<uint64_t> entries = memory.Take<uint64_t>(key.size()), spare = memory.Take<uint64_t>(key.size());
  for (uint32_t i = 0; i < key.size(); ++i)
    entries[i] = static_cast<uint64_t>(largest - key[i]) >> without << index_bits | i;
  if (entries.size() < 512) {
    std::sort(entries.begin(), entries.end());
  } else {
    RadixSort(entries, spare, index_bits, index_bits + key_bits);
  }
  const uint64_t mask = (uint64_t{1} << index_bits) - 1;
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(entries[i] & mask);
  return order;
}

std::vector<uint32_t> BalanceProblem::AllBeside() const {
  std::vector<uint32_t> beside(home.size());
  for (size_t i = 0; i < beside.size(); ++i) beside[i] = Beside(i);
  return beside;
}

}  // namespace evenkeel::reorder
