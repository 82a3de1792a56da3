// Post-balancing without padding: OrchMLLM, algorithm 1. The units in descending order of cost, each
// to the rank that has least so far: longest processing time first, at most 4/3 of the optimum.
//
// The paper sorts and sums lengths; with the job's cost in their place the same greedy also serves a
// quadratic term.
#include <algorithm>
#include <utility>

#include "reorder/balance.h"

namespace evenkeel::reorder {
namespace {

class GreedyPackedBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "greedy_packed"; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    if (problem.equal_counts) return GreedyWithEqualCounts(problem);
    // (load, units, rank): among equal loads the rank with fewer units, so that free units spread too.
    struct Bin {
      Load load;
      uint32_t units;
      uint32_t rank;
      bool operator<(const Bin& other) const {  // a heap keeps its largest in front: order by "later"
        if (load != other.load) return load > other.load;
        if (units != other.units) return units > other.units;
        return rank > other.rank;
      }
    };
    std::vector<Bin> heap;
    for (uint32_t r = 0; r < problem.ranks->size(); ++r) heap.push_back({0, 0, r});
    std::vector<uint32_t> rank(problem.cost.size());
    for (uint32_t unit : DearestFirst(problem.cost)) {
      rank[unit] = heap.front().rank;
      Bin bin = heap.front();
      bin.load += problem.cost[unit];
      ++bin.units;
      SiftDown(heap, bin);
    }
    return rank;
  }

 private:
  // Replaces the front by `bin`, which is not before it.
  template <typename Bin>
  static void SiftDown(std::vector<Bin>& heap, const Bin& bin) {
    size_t hole = 0;
    for (;;) {
      size_t child = 2 * hole + 1;
      if (child >= heap.size()) break;
      if (child + 1 < heap.size() && heap[child] < heap[child + 1]) ++child;
      if (!(bin < heap[child])) break;
      heap[hole] = heap[child];
      hole = child;
    }
    heap[hole] = bin;
  }
};

}  // namespace

const Balancer& GreedyPacked() {
  static const GreedyPackedBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
