// Cuts every rank's samples into microbatches, the same number on every rank.
//
// Not the choice of ranks (balance.h), nor the order of the microbatches for a pipeline.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reorder/balance.h"

namespace evenkeel::reorder {

struct SplitProblem {
  uint32_t num_ranks = 0;
  std::span<const uint32_t> rank;    // [samples]
  std::span<const uint32_t> tokens;  // [samples] aligned; none above the capacity
  std::span<const Load> cost;        // [samples] of the llm
  Batching batching = Batching::kPacked;
  uint64_t capacity_tokens =
      0;  // packed: sum of a microbatch's tokens; padded: count * longest. 0: unlimited
  uint32_t count_multiple = 1;
  // Costs per sample in the encoder phases that run once per microbatch. [phases][samples]
  std::vector<std::span<const Load>> in_view;
};

struct Split {
  uint32_t num_microbatches = 1;
  std::vector<uint32_t> microbatch;  // [samples]
};

// The number of microbatches is the least multiple of count_multiple with which best-fit decreasing (packed)
// or the least cut (padded) keeps the capacity on every rank. Within a rank the microbatches are alike in
// cost; over the ranks, microbatches of one index together have about as much for each encoder in view as
// those of any other index.
Split SplitIntoMicrobatches(const SplitProblem& problem);

// What nobody balances: each rank's samples in their order, a new microbatch where the next one does not fit.
Split FillInOrder(const SplitProblem& problem);

}  // namespace evenkeel::reorder
