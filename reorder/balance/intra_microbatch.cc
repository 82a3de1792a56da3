// Intra-microbatch reordering: DistTrain, algorithm 1. The samples in descending order of size, each to the
// data-parallel group that has least so far.
//
// The paper then flattens the groups into one list that the trainer cuts into equal parts, which are the
// groups only where all have the same number of samples: so a group that has its number takes no more.
#include <algorithm>
#include <utility>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {
namespace {

class IntraMicrobatchBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "intra_microbatch"; }
  bool KeepsCountsEqual() const override { return true; }
  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    return GreedyWithEqualCounts(problem);
  }
};

}  // namespace

std::vector<uint32_t> GreedyWithEqualCounts(const BalanceProblem& problem) {
  const size_t ranks = problem.ranks->size();
  const size_t least = problem.cost.size() / ranks;
  size_t with_one_more = problem.cost.size() % ranks;  // groups that may still take one more than `least`
  using Group = std::pair<Load, uint32_t>;             // (load, rank)
  std::vector<Group> heap;
  for (uint32_t r = 0; r < ranks; ++r) heap.emplace_back(0, r);
  const auto later = [](const Group& a, const Group& b) { return a > b; };
  std::vector<size_t> count(ranks, 0);
  std::vector<uint32_t> rank(problem.cost.size());
  for (uint32_t unit : HeaviestFirst(problem.cost)) {
    // Groups that are full, or that only one more than their share would fit, have had their turn.
    while (count[heap.front().second] >= least + (with_one_more > 0 ? 1 : 0)) {
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
    }
    std::pop_heap(heap.begin(), heap.end(), later);
    const uint32_t r = heap.back().second;
    rank[unit] = r;
    heap.back().first += problem.cost[unit];
    if (++count[r] > least) --with_one_more;
    std::push_heap(heap.begin(), heap.end(), later);
  }
  return rank;
}

const Balancer& IntraMicrobatch() {
  static const IntraMicrobatchBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
