// The list of all balancers, and what several of them share.
#include "reorder/balance/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "reorder/by_name.h"

namespace evenkeel::reorder {

std::span<const NamedBalancer> BalancersByName() {
  static const NamedBalancer kBalancers[] = {
      {"balance_without_moving", &BalanceWithoutMoving()},
      {"greedy_packed", &GreedyPacked()},
      {"greedy_padded", &GreedyPadded()},
      {"binary_search_padded", &GreedyPadded()},  // another name of the same
      {"greedy_quadratic", &GreedyQuadratic()},
      {"greedy_padded_attention", &GreedyPaddedAttention()},
      {"intra_microbatch", &IntraMicrobatch()},
      {"karmarkar_karp", &KarmarkarKarp()},
      {"node_wise", &NodeWise()},
      {"none", &None()}};
  return kBalancers;
}

std::string BalancerNames() { return NamesOf(BalancersByName()); }

const Balancer* FindBalancer(std::string_view name) {
  const NamedBalancer* const found = FindByName(BalancersByName(), name);
  return found == nullptr ? nullptr : found->balancer;
}

std::span<const Balancer* const> Balancers() {
  static const std::vector<const Balancer*>* const kOnce = [] {
    auto* balancers = new std::vector<const Balancer*>();
    for (const NamedBalancer& named : BalancersByName()) {
      if (named.name == named.balancer->name()) balancers->push_back(named.balancer);
    }
    return balancers;
  }();
  return *kOnce;
}

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
  const Load tolerated = least + static_cast<Load>(static_cast<double>(least) * tolerance);
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

std::vector<uint32_t> BalanceProblem::DefaultRanks() const {
  std::vector<uint32_t> ranks(home.size());
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = DefaultRank(i);
  return ranks;
}

}  // namespace evenkeel::reorder
