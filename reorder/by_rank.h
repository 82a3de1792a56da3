// The units of each rank.
// Example:
//     const std::vector<std::vector<uint32_t>> units = UnitsByRank(rank, num_ranks);
//     for (uint32_t unit : units[3]) Use(unit);  // ascending
//
// Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::reorder {

// `rank`: of every unit, below `num_ranks`.
inline std::vector<std::vector<uint32_t>> UnitsByRank(std::span<const uint32_t> rank, size_t num_ranks) {
  std::vector<std::vector<uint32_t>> units(num_ranks);
  for (uint32_t unit = 0; unit < rank.size(); ++unit) units[rank[unit]].push_back(unit);
  return units;
}

}  // namespace evenkeel::reorder
