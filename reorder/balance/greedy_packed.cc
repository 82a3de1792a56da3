// Post-balancing without padding: OrchMLLM, algorithm 1. The units in descending order of cost, each
// to the rank that has least so far: longest processing time first, at most 4/3 of the optimum.
//
// The paper sorts and sums lengths; with the job's cost in their place the same greedy also serves a
// quadratic term.
#include <queue>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {
namespace {

class GreedyPackedBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "greedy_packed"; }
  bool KeepsCountsEqual() const override { return true; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    if (problem.equal_counts) return GreedyWithEqualCounts(problem);
    // (load, units, rank): among equal loads the rank with fewer units, so that free units spread too.
    struct Bin {
      Load load;
      uint32_t units;
      uint32_t rank;
      bool operator<(const Bin& other) const {  // a queue gives its largest first: order by "later"
        if (load != other.load) return load > other.load;
        if (units != other.units) return units > other.units;
        return rank > other.rank;
      }
    };
    std::priority_queue<Bin> bins;
    for (uint32_t r = 0; r < problem.ranks->size(); ++r) bins.push({0, 0, r});
    std::vector<uint32_t> rank(problem.cost.size());
    for (uint32_t unit : HeaviestFirst(problem.cost)) {
      Bin bin = bins.top();
      bins.pop();
      rank[unit] = bin.rank;
      bin.load += problem.cost[unit];
      ++bin.units;
      bins.push(bin);
    }
    return rank;
  }
};

}  // namespace

const Balancer& GreedyPacked() {
  static const GreedyPackedBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
