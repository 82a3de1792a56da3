// How uneven loads are: the largest over the mean, which is what a barrier waits for.
//
// Example:
//     double spread = MaxOverMean(phase.load_after);  // 1: all equal
//
// Thread safety: a pure function.
#pragma once

#include <algorithm>
#include <span>

namespace evenkeel {

// Of loads that are not negative, in any unit; 1 where there is none or all are 0.
inline double MaxOverMean(std::span<const double> loads) {
  double sum = 0, most = 0;
  for (double load : loads) sum += load, most = std::max(most, load);
  return sum > 0 ? most * static_cast<double>(loads.size()) / sum : 1;
}

}  // namespace evenkeel
