// Post-balancing where only attention needs padding, as in convolution transformers: OrchMLLM, algorithm 5.
// A batch costs the sum of its lengths and, times a factor, its count times the square of its longest. So
// long sequences go together, heaviest first, while their padded area is at most what the largest sum must be
// anyway; when every batch is open, the rest goes one by one to the batch with the least sum.
//
// Mended against the paper's text: the area is the count times the batch's first length, which is its longest
// (the text takes the length that comes), a sequence is pushed whether or not it opened a batch, and there
// are never more batches than ranks.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

std::vector<uint32_t> GreedyPaddedAttention(const BalanceProblem& problem) {
  const uint32_t ranks = problem.ranks->size();
  const std::vector<Load> length(problem.length.begin(), problem.length.end());
  BalanceProblem without_padding{.ranks = problem.ranks, .cost = length};
  const Load bound = HeaviestRank(without_padding, GreedyPacked(without_padding));
  const std::vector<uint32_t> order = HeaviestFirst(length);

  std::vector<uint32_t> rank(length.size());
  std::vector<Load> sum(ranks, 0);
  uint32_t current = 0;
  Load count = 0, longest = 0;
  size_t next = 0;
  for (; next < order.size(); ++next) {
    const uint32_t unit = order[next];
    if (count > 0 && (count + 1) * longest > bound) {
      if (current + 1 == ranks) break;
      ++current;
      count = 0;
    }
    if (count++ == 0) longest = length[unit];
    rank[unit] = current;
    sum[current] += length[unit];
  }
  using Batch = std::pair<Load, uint32_t>;  // (sum, rank)
  std::priority_queue<Batch, std::vector<Batch>, std::greater<>> least;
  for (uint32_t r = 0; r < ranks; ++r) least.push({sum[r], r});
  for (; next < order.size(); ++next) {
    const auto [least_sum, r] = least.top();
    least.pop();
    rank[order[next]] = r;
    least.push({least_sum + length[order[next]], r});
  }
  return rank;
}

}  // namespace evenkeel::reorder
