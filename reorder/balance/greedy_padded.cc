// Post-balancing with padding: OrchMLLM, algorithm 2. A batch costs its count times its longest unit, so like
// goes with like: units in ascending order are cut into the fewest batches under a bound, and the bound is
// searched.
//
// Mended against the paper's text: the search starts from the longest unit (the text reads the first of an
// ascending list) up to longest * ceil(n / batches) (the text's d/2 + 1 is too low for many units), a unit is
// pushed whether or not it opened a batch, and the batches returned are those of the least feasible bound,
// not of the last one tried. The greedy cut of a sorted list uses the fewest batches possible, so the largest
// batch is as small as can be.
#include <algorithm>
#include <limits>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {
namespace {

// GETLEASTBATCHES: cuts units in ascending order into the fewest batches of at most `bound`, and returns the
// batch of each. Stops where there would be more than `most` batches.
std::vector<uint32_t> CutUnder(std::span<const Load> ascending, Load bound, uint64_t most) {
  std::vector<uint32_t> batch;
  uint32_t current = 0;
  Load count = 0;
  for (Load cost : ascending) {
    if (count > 0 && (count + 1) * cost > bound) {
      if (++current == most) break;
      count = 0;
    }
    ++count;
    batch.push_back(current);
  }
  return batch;
}

// The least bound that `batches` batches keep, by bisection: O(n log(longest * n)).
Load LeastBound(const std::vector<Load>& ascending, uint64_t batches) {
  const Load longest = ascending.back();
  Load left = longest;
  Load right = longest * static_cast<Load>((ascending.size() + batches - 1) / batches);
  while (left < right) {
    const Load mid = left + (right - left) / 2;
    if (CutUnder(ascending, mid, batches).size() == ascending.size()) {
      right = mid;
    } else {
      left = mid + 1;
    }
  }
  return right;
}

}  // namespace

std::vector<uint32_t> GreedyPadded(const BalanceProblem& problem) {
  const uint32_t ranks = problem.ranks->size();
  std::vector<uint32_t> batch = CutIntoBatches(problem.cost, uint64_t{ranks} * problem.batches_per_rank);
  if (problem.batches_per_rank <= 1) return batch;
  // Several batches a rank: heaviest first, each to the rank with least of those that have room.
  const size_t batches = batch.empty() ? 0 : size_t{*std::max_element(batch.begin(), batch.end())} + 1;
  const std::vector<uint32_t> rank_of_batch =
      GreedyUpTo(PaddedLoads(problem.cost, batch, batches), ranks, problem.batches_per_rank, ranks);
  for (uint32_t& b : batch) b = rank_of_batch[b];
  return batch;
}

std::vector<Load> PaddedLoads(std::span<const Load> cost, std::span<const uint32_t> batch, size_t batches) {
  std::vector<Load> load(batches, 0), heaviest(batches, 0);
  for (size_t i = 0; i < batch.size(); ++i) {
    ++load[batch[i]];
    heaviest[batch[i]] = std::max(heaviest[batch[i]], cost[i]);
  }
  for (size_t b = 0; b < batches; ++b) load[b] *= heaviest[b];
  return load;
}

std::vector<uint32_t> CutIntoBatches(std::span<const Load> cost, uint64_t batches) {
  std::vector<uint32_t> batch(cost.size(), 0);
  if (cost.empty()) return batch;
  std::vector<uint32_t> order = HeaviestFirst(cost);
  std::reverse(order.begin(), order.end());
  std::vector<Load> ascending(cost.size());
  for (size_t i = 0; i < order.size(); ++i) ascending[i] = cost[order[i]];
  const std::vector<uint32_t> cut = CutUnder(ascending, LeastBound(ascending, batches), batches);
  for (size_t i = 0; i < order.size(); ++i) batch[order[i]] = cut[i];
  return batch;
}

uint64_t LeastPaddedBatches(std::span<const uint32_t> lengths, uint64_t bound) {
  std::vector<Load> ascending(lengths.begin(), lengths.end());
  std::sort(ascending.begin(), ascending.end());
  const Load most = static_cast<Load>(std::min<uint64_t>(bound, std::numeric_limits<Load>::max()));
  return ascending.empty() ? 0 : CutUnder(ascending, most, ascending.size()).back() + 1;
}

}  // namespace evenkeel::reorder
