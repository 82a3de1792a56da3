#include "reorder/joint_placement.h"

namespace evenkeel::reorder {

std::vector<uint32_t> PlaceJointly(const BalanceProblem& problem) { return GreedyPacked().Assign(problem); }

}  // namespace evenkeel::reorder
