#include "reorder/balance.h"
#include "reorder/joint_placement.h"

namespace evenkeel::reorder {
namespace {

class BalanceWithoutMovingBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "balance_without_moving"; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    if (!problem.items_have_homes) return PlaceJointly(problem);
    return None().Assign(problem);
  }
};

}  // namespace

const Balancer& BalanceWithoutMoving() {
  static const BalanceWithoutMovingBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
