// The best placement of few units, by trying all: for tests and benchmarks. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

// The load of the dearest rank, padded: its count times its longest.
inline Load Padded(const std::vector<Load>& cost, const std::vector<uint32_t>& rank, uint32_t ranks) {
  std::vector<Load> count(ranks, 0), longest(ranks, 0);
  for (size_t i = 0; i < cost.size(); ++i) {
    ++count[rank[i]];
    longest[rank[i]] = std::max(longest[rank[i]], cost[i]);
  }
  Load largest = 0;
  for (uint32_t r = 0; r < ranks; ++r) largest = std::max(largest, count[r] * longest[r]);
  return largest;
}

// The least largest load over all assignments.
template <typename Objective>
Load Exhaustive(const std::vector<Load>& cost, uint32_t ranks, Objective objective) {
  std::vector<uint32_t> rank(cost.size(), 0);
  Load best = objective(cost, rank, ranks);
  for (;;) {
    size_t i = 0;
    while (i < rank.size() && ++rank[i] == ranks) rank[i++] = 0;
    if (i == rank.size()) return best;
    best = std::min(best, objective(cost, rank, ranks));
  }
}

}  // namespace evenkeel::reorder
