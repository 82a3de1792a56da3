// The second half of balance_without_moving: items whose home ranks are given. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

// The rank of every item of a packed problem with homes: its home rank, except for what is above the
// tolerance on overloaded ranks, which moves to a rank of the same node, or where the whole node has too
// much, to another node. Items without a home rank are placed first: on their node's ranks, or over all.
std::vector<uint32_t> MoveExcess(const BalanceProblem& problem);

}  // namespace evenkeel::reorder
