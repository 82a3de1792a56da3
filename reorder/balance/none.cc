// No balancing: samples are assigned in turn, items stay with their sample. The baseline of the other
// algorithms.
#include "reorder/balance/balance.h"

namespace evenkeel::reorder {
namespace {

class NoneBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "none"; }
  bool KeepsItemsOnHomeRank() const override { return true; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    if (problem.ItemsHaveHomes()) return problem.DefaultRanks();
    std::vector<uint32_t> rank(problem.cost.size());
    for (uint32_t i = 0; i < rank.size(); ++i) rank[i] = i % problem.ranks->size();
    return rank;
  }
};

}  // namespace

const Balancer& None() {
  static const NoneBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
