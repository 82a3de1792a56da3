// Post-balancing with the quadratic term of attention: OrchMLLM, algorithm 4. The sequences in descending
// order of length, each to the batch with the least sum of lengths; among sums within the tolerance interval
// of each other to the one with the least sum of squares.
//
// Mended against the paper's text, whose comparison is not transitive: sums are compared by the interval they
// fall into, floor(sum / v), then squares, then the index. The interval v is the tolerance as a share of the
// mean sum.
#include <algorithm>
#include <set>
#include <tuple>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {
namespace {

class GreedyQuadraticBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "greedy_quadratic"; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    const uint32_t ranks = problem.ranks->size();
    uint64_t total = 0;
    std::vector<Load> key(problem.length.begin(), problem.length.end());
    for (uint32_t length : problem.length) total += length;
    const double wanted = problem.tolerance * (static_cast<double>(total) / ranks);
    const uint64_t interval = std::max<uint64_t>(1, static_cast<uint64_t>(wanted));

    struct Batch {
      uint64_t sum = 0;
      unsigned __int128 squares = 0;
    };
    std::vector<Batch> batches(ranks);
    std::set<std::tuple<uint64_t, unsigned __int128, uint32_t>> order;  // (sum / v, squares, rank)
    for (uint32_t r = 0; r < ranks; ++r) order.insert({0, 0, r});
    std::vector<uint32_t> rank(key.size());
    for (uint32_t unit : HeaviestFirst(key)) {
      auto node = order.extract(order.begin());
      const uint32_t r = std::get<2>(node.value());
      rank[unit] = r;
      const uint64_t length = problem.length[unit];
      batches[r].sum += length;
      batches[r].squares += static_cast<unsigned __int128>(length) * length;
      node.value() = {batches[r].sum / interval, batches[r].squares, r};
      order.insert(std::move(node));
    }
    return rank;
  }
};

}  // namespace

const Balancer& GreedyQuadratic() {
  static const GreedyQuadraticBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
