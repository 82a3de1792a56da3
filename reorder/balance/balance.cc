// The list of all balancers, and what several of them share.
#include "reorder/balance/balance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "reorder/by_name.h"

namespace evenkeel::reorder {

std::span<const Balancer> Balancers() {
  static constexpr Balancer kBalancers[] = {
      {.name = "balance_without_moving",
       .assign = BalanceWithoutMoving,
       .keeps_items_on_home_rank = true,
       .keeps_counts_equal = true},
      {.name = "greedy_packed", .assign = GreedyPacked, .keeps_counts_equal = true},
      {.name = "greedy_padded", .assign = GreedyPadded},
      {.name = "binary_search_padded", .assign = GreedyPadded},  // another name of the same
      {.name = "greedy_quadratic", .assign = GreedyQuadratic},
      {.name = "greedy_padded_attention", .assign = GreedyPaddedAttention},
      {.name = "intra_microbatch", .assign = IntraMicrobatch, .keeps_counts_equal = true},
      {.name = "karmarkar_karp", .assign = KarmarkarKarp, .keeps_counts_equal = true},
      {.name = "node_wise", .assign = NodeWise, .keeps_batches_on_node = true, .keeps_counts_equal = true},
      {.name = "none", .assign = None, .keeps_items_on_home_rank = true}};
  return kBalancers;
}

const Balancer* FindBalancer(std::string_view name) { return FindByName(Balancers(), name); }

std::string BalancerNames() { return NamesOf(Balancers()); }

Scale::Scale(double total) {
  if (!(total > 0)) return;
  int exponent = 0;
  std::frexp(total, &exponent);  // total < 2^exponent
  factor_ = std::ldexp(1.0, 51 - exponent);
}

Load MinHeaviestRank(std::span<const Load> cost, size_t ranks, double tolerance) {
  Load sum = 0, heaviest = 0, unit = 0;
  for (Load c : cost) sum += c, heaviest = std::max(heaviest, c);
  const Load num_ranks = static_cast<Load>(ranks), mean = (sum + num_ranks - 1) / num_ranks;
  const Load least = std::max(heaviest, mean);
  const Load tolerated = WithTolerance(least, tolerance);
  for (Load c : cost) {
    if (unit == 0 || c % unit != 0) unit = std::gcd(unit, c);
    if (unit > 0 && unit <= tolerated - mean) return least;  // after a few costs that have little in common
  }
  const Load rounded = unit == 0 ? 0 : (mean + unit - 1) / unit * unit;
  return rounded <= tolerated ? least : rounded;
}

Load HeaviestRank(const BalanceProblem& problem, std::span<const uint32_t> rank) {
  std::vector<Load> load(problem.ranks->size(), 0);
  for (size_t i = 0; i < rank.size(); ++i) load[rank[i]] += problem.cost[i];
  return *std::max_element(load.begin(), load.end());
}

std::vector<uint32_t> HeaviestFirst(std::span<const Load> key) {
  std::vector<std::pair<Load, uint32_t>> entries(key.size());  // (-key, index)
  for (uint32_t i = 0; i < key.size(); ++i) entries[i] = {-key[i], i};
  std::sort(entries.begin(), entries.end());
  std::vector<uint32_t> order(key.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = entries[i].second;
  return order;
}

std::vector<uint32_t> GreedyUpTo(std::span<const Load> cost, size_t ranks, size_t most, size_t num_full) {
  using Entry = std::pair<Load, uint32_t>;  // (load, rank)
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> least;
  for (uint32_t r = 0; r < ranks; ++r) least.push({0, r});
  std::vector<size_t> count(ranks, 0);
  std::vector<uint32_t> rank(cost.size());
  for (uint32_t unit : HeaviestFirst(cost)) {
    // Ranks that are full, or may not become so any more, take none.
    while (count[least.top().second] + (num_full == 0 ? 1 : 0) >= most) least.pop();
    const auto [load, r] = least.top();
    least.pop();
    rank[unit] = r;
    if (++count[r] == most) --num_full;
    least.push({load + cost[unit], r});
  }
  return rank;
}

std::vector<uint32_t> BalanceProblem::DefaultRanks() const {
  std::vector<uint32_t> ranks(home.size());
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = DefaultRank(i);
  return ranks;
}

}  // namespace evenkeel::reorder
