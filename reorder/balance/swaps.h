// Repairs a placement by exchanging units between two ranks at a time. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reorder/balance/rank_tree.h"

namespace evenkeel::reorder {

// One pass over the ranks. Weights say what a share above the cap counts in a phase: the ranks are repaired
// in the order of their weighted excess.
struct SwapPass {
  float llm_weight = 1;
  float encoder_weight = 1;   // of every encoder
  uint32_t far_partners = 0;  // ranks of other groups tried per repair, for the few left over
  bool llm_only = false;      // leaves ranks alone whose excess is in encoder phases only
};

struct SwapProblem {
  const ShareTable& units;  // large ones first: the order in which they are looked at
  const ShareTable& load;   // [ranks]
  const std::vector<std::vector<uint32_t>>& groups;  // of ranks; partners are sought in the same group first
  std::vector<float> cap;                            // [phases] load up to which a rank is left alone
  std::vector<SwapPass> passes;
};

// Changes `rank` such that no, or fewer, ranks are above the caps. The number of exchanges tried is bounded.
void RepairBySwaps(const SwapProblem& problem, std::span<uint32_t> rank);

}  // namespace evenkeel::reorder
