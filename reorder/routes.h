// Composed routes: from the encoder's order straight to the llm's, without the two rearrangements one after
// the other (OrchMLLM, rearrangement composition). A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.h"

namespace evenkeel::reorder {

// Dynamic context parallelism: which ranks take the rows of a batch.
struct GroupsOfRoute {
  std::span<const RankGroup> groups =
      {};  // as Plan::groups; empty: every rank takes those of its own batches
  // Every member of a group encodes the items itself: no row moves. The encoder runs once per microbatch.
  bool shared = false;
};

// The items of one encoder phase, and where each is on both sides. A batch of the llm is rank * microbatches
// + microbatch, and so is one of the encoder.
struct RouteProblem {
  const PhasePlan& encoder;                      // `ranks` and `num_microbatches` are read
  const PhasePlan& llm;                          // the same
  std::span<const uint32_t> items;               // in the order in which the llm takes them
  std::span<const uint32_t> llm_batch_begin;     // [batches + 1] into `items`
  std::span<const uint32_t> encoder_batch;       // [items] that computes it
  std::span<const uint64_t> first_row;           // [items] in the output of that batch
  std::span<const uint32_t> rows;                // [items] output rows
  std::span<const uint64_t> encoder_batch_rows;  // [batches] of all items, dummies included
  GroupsOfRoute groups = {};
};

// One route per exchange: one, or one per microbatch. `Route::from` and `to` are left to the caller. Of a generator, which
// stands for the encoder here, rows travel the other way: the consumer reads its routes backwards.
std::vector<Route> ComposeRoutes(const RouteProblem& problem);

}  // namespace evenkeel::reorder
