// Post-balancing with the quadratic term of attention: OrchMLLM, algorithm 4. The sequences in descending
// order of length, each to the batch with the least sum of lengths; among sums within the tolerance interval
// of each other to the one with the least sum of squares.
//
// Mended against the paper's text, whose comparison is not transitive: sums are compared by the interval they
// fall into, floor(sum / v), then squares, then the index. The interval v is the tolerance as a share of the
// mean sum.
#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

std::vector<uint32_t> GreedyQuadratic(const BalanceProblem& problem) {
  const uint32_t ranks = problem.ranks->size();
  uint64_t total = 0;
  std::vector<Load> key(problem.length.begin(), problem.length.end());
  for (uint32_t length : problem.length) total += length;
  const double wanted = problem.tolerance * (static_cast<double>(total) / ranks);
  const uint64_t interval = std::max<uint64_t>(1, static_cast<uint64_t>(wanted));

  using Squares = unsigned __int128;
  using Batch = std::tuple<uint64_t, Squares, uint32_t>;  // (sum / v, squares, rank)
  std::priority_queue<Batch, std::vector<Batch>, std::greater<>> least;
  for (uint32_t r = 0; r < ranks; ++r) least.push({0, 0, r});
  std::vector<uint64_t> sum(ranks, 0);
  std::vector<uint32_t> rank(key.size());
  for (uint32_t unit : HeaviestFirst(key)) {
    const auto [interval_of_sum, squares, r] = least.top();
    least.pop();
    rank[unit] = r;
    const uint64_t length = problem.length[unit];
    sum[r] += length;
    least.push({sum[r] / interval, squares + Squares{length} * length, r});
  }
  return rank;
}

}  // namespace evenkeel::reorder
