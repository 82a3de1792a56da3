// The ranks of one wave that groups have taken. A group of n ranks begins at a multiple of n.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/context_groups.h"

namespace evenkeel::reorder {

class AlignedPlaces {
 public:
  explicit AlignedPlaces(uint32_t ranks) : taken_(ranks, false) {}

  // Takes the first free places of `size` ranks, `count` of them or as many as there are; ascending.
  std::vector<RankGroup> Take(uint32_t size, uint32_t count) {
    std::vector<RankGroup> out;
    for (uint32_t first = 0; out.size() < count && first + size <= taken_.size(); first += size) {
      const auto begin = taken_.begin() + first;
      if (std::find(begin, begin + size, true) != begin + size) continue;
      std::fill(begin, begin + size, true);
      out.push_back({first, size});
    }
    return out;
  }

 private:
  std::vector<bool> taken_;
};

}  // namespace evenkeel::reorder
