// The two halves of balance_without_moving: samples, then items. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

// The rank of every unit of a problem whose placement is free, such that the loads of the phase itself, and
// then those of the co-balanced phases, are close to their means on every rank: then items can stay on the
// rank of their sample. O(n log n).
std::vector<uint32_t> PlaceJointly(const BalanceProblem& problem);

// The rank of every item of a packed problem with homes: its home rank, except for what is above the
// tolerance on overloaded ranks, which moves to a rank of the same node, or where the whole node has too
// much, to another node. Items without a home rank are placed first: on their node's ranks, or over all. Ranks may stay above
// the tolerance where no single move or exchange within it is left.
std::vector<uint32_t> MoveExcess(const BalanceProblem& problem);

// The balancers that every placement is compared with, the better of which is taken.
inline constexpr std::string_view kSimpleMethods[] = {"greedy_packed", "karmarkar_karp"};

// The load up to which the tolerance leaves a rank as it is.
Load CapOf(const BalanceProblem& problem);

}  // namespace evenkeel::reorder
