// Deals bins that were packed before to the ranks and microbatches of a step: a bin is one microbatch of one rank.
//
// Bins are alike, but not equal. Bins of about the same load become the microbatches of one index, because ranks wait for
// each other there; within an index the heaviest goes to the rank that has had least, so that the sums of ranks are alike.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

struct DealtBins {
  uint32_t num_microbatches = 1;
  std::vector<uint32_t> rank;        // [bins]
  std::vector<uint32_t> microbatch;  // [bins]
};

// `loads`: [phases][bins]. The number of bins is a multiple of `ranks`, above 0.
DealtBins DealBins(const std::vector<std::vector<Load>>& loads, uint32_t ranks);

// What nobody balances: bins in their order, to the ranks in turn.
DealtBins DealBinsInOrder(uint32_t bins, uint32_t ranks);

}  // namespace evenkeel::reorder
