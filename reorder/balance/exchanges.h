// Makes the heaviest rank of a placement lighter by moves and exchanges between two ranks at a time, of as little as
// possible. It considers one phase, and no homes of items.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <span>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

// A unit and its cost, or no unit (kNowhere), which costs nothing. Heaviest first, equal ones by number.
struct CostedUnit {
  Load cost = 0;
  uint32_t unit = kNowhere;

  bool operator<(const CostedUnit& other) const {
    return cost != other.cost ? cost > other.cost : unit < other.unit;
  }
};

struct ExchangeLimits {
  Load enough = 0;                    // a heaviest rank of at most this load is left as it is
  bool keep_counts = false;           // only exchanges, so that every rank keeps its number of units
  const PhaseRanks* nodes = nullptr;  // if given, ranks of the same node are tried first
  bool stay_on_node =
      false;  // and no others; every rank above `enough` is then treated, not the heaviest alone
  // If given, the size of every unit, and what the units of a rank may have together: no rank comes to have more than that.
  std::span<const Load> size;
  Load capacity = 0;
};

// Changes `rank` ([units], below `ranks`) until no pair of ranks makes the heaviest lighter, or it is light enough, or the
// number of steps, which is proportional to the ranks, is used up. The heaviest rank never becomes heavier.
void EvenOut(std::span<const Load> cost, uint32_t ranks, const ExchangeLimits& limits,
             std::span<uint32_t> rank);

}  // namespace evenkeel::reorder
