// Repairs a placement by exchanging units between two ranks at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reorder/families.h"
#include "reorder/workspace.h"

namespace evenkeel::reorder {

// One pass over the ranks.
struct SwapPass {
  Shares weight = {};  // what a share above the cap counts; what is repaired where the weight is largest
  uint32_t far_partners = 0;  // ranks of other families tried per repair, for the few left over
  bool llm_only = false;      // leave ranks alone whose excess is in the phases in view only
};

struct SwapProblem {
  std::span<const Unit> units;          // large ones first: the order in which they are looked at
  std::span<const Shares> load;         // [ranks]
  const std::vector<Family>* families;  // leaves: partners are sought in the same family first
  Shares cap = {};                      // load up to which a rank is left alone
  std::vector<SwapPass> passes;
};

// Changes `rank` such that no, or fewer, ranks are above the caps. The number of exchanges tried is bounded.
// The same for every width.
void RepairBySwaps(const SwapProblem& problem, std::span<uint32_t> rank, Workspace& workspace,
                   Width width = Widest(Width::kSixteen));

}  // namespace evenkeel::reorder
