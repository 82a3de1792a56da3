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

struct Cut {
  uint64_t batches = 0;
  Load largest = 0;                                 // heaviest batch
  Load blocked = std::numeric_limits<Load>::max();  // the least bound under which the cut would differ
};

// GETLEASTBATCHES: the fewest batches of at most `bound`; stops counting when there are more than `most`.
Cut CutUnder(const std::vector<Load>& ascending, Load bound, uint64_t most) {
  Cut cut{.batches = 1};
  Load count = 0;
  for (Load cost : ascending) {
    const Load grown = (count + 1) * cost;
    if (grown > bound && count > 0) {
      cut.blocked = std::min(cut.blocked, grown);
      if (++cut.batches > most) return cut;
      count = 0;
    }
    ++count;
    cut.largest = std::max(cut.largest, count * cost);
  }
  return cut;
}

Load LeastBound(const std::vector<Load>& ascending, uint64_t batches) {
  const Load longest = ascending.back();
  Load left = longest;
  Load right = longest * static_cast<Load>((ascending.size() + batches - 1) / batches);
  while (left < right) {
    const Load mid = left + (right - left) / 2;
    const Cut cut = CutUnder(ascending, mid, batches);
    if (cut.batches <= batches) {
      right = std::max(left, cut.largest);  // what it really reached, at most mid
    } else {
      left = std::min(right, std::max(mid + 1, cut.blocked));
    }
  }
  return right;
}

class GreedyPaddedBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "greedy_padded"; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    std::vector<uint32_t> batch =
        CutIntoBatches(problem.cost, uint64_t{problem.ranks->size()} * problem.batches_per_rank);
    if (problem.batches_per_rank <= 1) return batch;
    // Several batches a rank: heaviest first, each to the rank with least of those that have room.
    uint32_t num_batches = 0;
    for (uint32_t b : batch) num_batches = std::max(num_batches, b + 1);
    std::vector<Load> heaviest(num_batches, 0), count(num_batches, 0);
    for (size_t i = 0; i < batch.size(); ++i) {
      heaviest[batch[i]] = std::max(heaviest[batch[i]], problem.cost[i]);
      ++count[batch[i]];
    }
    for (uint32_t b = 0; b < num_batches; ++b) heaviest[b] *= count[b];
    const std::vector<uint32_t> rank_of_batch =
        Deal(heaviest, problem.ranks->size(), problem.batches_per_rank);
    for (uint32_t& b : batch) b = rank_of_batch[b];
    return batch;
  }

 private:
  static std::vector<uint32_t> Deal(const std::vector<Load>& cost, uint32_t ranks, uint32_t most) {
    using Entry = std::pair<Load, uint32_t>;
    std::vector<Entry> heap;
    for (uint32_t r = 0; r < ranks; ++r) heap.emplace_back(0, r);
    std::vector<uint32_t> taken(ranks, 0), rank(cost.size());
    const auto later = [](const Entry& a, const Entry& b) { return a > b; };
    for (uint32_t b : HeaviestFirst(cost)) {
      std::pop_heap(heap.begin(), heap.end(), later);
      rank[b] = heap.back().second;
      heap.back().first += cost[b];
      if (++taken[rank[b]] == most) {
        heap.pop_back();
      } else {
        std::push_heap(heap.begin(), heap.end(), later);
      }
    }
    return rank;
  }
};

}  // namespace

std::vector<uint32_t> CutIntoBatches(std::span<const Load> cost, uint64_t batches) {
  std::vector<uint32_t> batch(cost.size(), 0);
  if (cost.empty()) return batch;
  std::vector<uint32_t> order = HeaviestFirst(cost);
  std::reverse(order.begin(), order.end());
  std::vector<Load> ascending(cost.size());
  for (size_t i = 0; i < order.size(); ++i) ascending[i] = cost[order[i]];
  const Load bound = LeastBound(ascending, batches);
  uint32_t current = 0;
  Load count = 0;
  for (uint32_t unit : order) {
    if (count > 0 && (count + 1) * cost[unit] > bound) {
      ++current;
      count = 0;
    }
    ++count;
    batch[unit] = current;
  }
  return batch;
}

uint64_t LeastPaddedBatches(std::span<const uint32_t> lengths, uint64_t bound) {
  std::vector<Load> ascending(lengths.begin(), lengths.end());
  std::sort(ascending.begin(), ascending.end());
  const Load most = static_cast<Load>(std::min<uint64_t>(bound, std::numeric_limits<Load>::max()));
  return ascending.empty() ? 0 : CutUnder(ascending, most, ascending.size()).batches;
}

const Balancer& GreedyPadded() {
  static const GreedyPaddedBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
