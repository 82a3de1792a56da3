// The second half of balance_without_moving: items whose homes are given.
#pragma once

#include <cstdint>
#include <vector>

#include "reorder/balance.h"

namespace evenkeel::reorder {

// The rank of every item of a packed problem with homes: at home, but for what is above the tolerance on
// overloaded ranks, which moves to a rank of the same node, or where the whole node has too much, to another
// node. Items that have no rank at home are dealt out first: to their node's ranks, or over all.
std::vector<uint32_t> MoveExcess(const BalanceProblem& problem);

}  // namespace evenkeel::reorder
