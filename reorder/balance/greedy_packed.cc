// Post-balancing without padding: OrchMLLM, algorithm 1. The units in descending order of cost, each
// to the rank that has least so far: longest processing time first, at most 4/3 of the optimum.
//
// The paper sorts and sums lengths; with the job's cost in their place the same greedy also serves a
// quadratic term.
#include <functional>
#include <queue>
#include <tuple>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

std::vector<uint32_t> GreedyPacked(const BalanceProblem& problem) {
  if (problem.equal_counts) return IntraMicrobatch(problem);
  // (load, units, rank): among equal loads the rank with fewer units, so that free units spread too.
  using Bin = std::tuple<Load, uint32_t, uint32_t>;
  std::priority_queue<Bin, std::vector<Bin>, std::greater<>> least;
  for (uint32_t r = 0; r < problem.ranks->size(); ++r) least.push({0, 0, r});
  std::vector<uint32_t> rank(problem.cost.size());
  for (uint32_t unit : HeaviestFirst(problem.cost)) {
    const auto [load, units, r] = least.top();
    least.pop();
    rank[unit] = r;
    least.push({load + problem.cost[unit], units + 1, r});
  }
  return rank;
}

}  // namespace evenkeel::reorder
