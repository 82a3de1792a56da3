// The first half of balance_without_moving: samples to llm ranks with all co-balanced phases considered, so
// that items can stay on the rank of their sample. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

// The rank of every unit of a problem whose placement is free, such that the loads of the phase itself, and
// then those of the co-balanced phases, are close to their means on every rank. O(n log n).
std::vector<uint32_t> PlaceJointly(const BalanceProblem& problem);

}  // namespace evenkeel::reorder
