// The planner's working copy of a step: what it reads often, in arrays of its own. A plan's structs are wide,
// and everything here is read in an order that is not theirs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.h"
#include "reorder/balance.h"
#include "reorder/layout.h"
#include "reorder/workspace.h"

namespace evenkeel::reorder {

// The samples; arrays are [samples], in the sampler's order.
struct LlmUnits {
  std::span<uint32_t> tokens;  // aligned
  std::span<uint32_t> loss_tokens;
  std::span<uint32_t> first_item;  // [samples + 1] into Plan::items
  std::span<Medium> medium;        // [items] of every item, in the order of Plan::items
  std::span<Load> load;            // the cost in integers
  std::vector<uint32_t> rank;
  std::vector<uint32_t> microbatch;
  std::span<uint32_t> position;  // within rank and microbatch
};

// The items of one encoder phase; arrays are [items of the phase], by sample and then ordinal.
struct EncoderUnits {
  std::span<uint32_t> item;  // into Plan::items
  std::span<uint32_t> sample;
  std::span<uint32_t> length;  // cost_length
  std::span<uint32_t> rows;    // output_rows
  std::span<uint32_t> input_rows;
  std::span<bool> video;
  std::span<Load> load;            // the cost in integers
  std::span<Load> load_of_sample;  // [samples]
  std::vector<uint32_t> rank;      // where it is computed
  std::span<uint32_t> position;    // within rank and microbatch
};

// Fills `phase_plan.order` and `.begin` and the positions of the samples: in the sampler's order within a
// microbatch.
void OrderSamples(LlmUnits& llm, PhasePlan& phase_plan, Workspace& workspace);

// The same for the items of an encoder: images before videos, then in the order of the llm. Appends dummies,
// which follow all items of the plan, where a rank and microbatch has fewer than `min_items`. Then the routes
// of the phase, one per exchange.
void OrderItems(const LlmUnits& llm, const PhasePlan& llm_plan, const Neighbours& neighbours,
                uint32_t min_items, const SampleItem& dummy, EncoderUnits& units, PhasePlan& phase_plan,
                std::vector<PlannedItem>& dummies, std::vector<Route>& routes, Workspace& workspace);

}  // namespace evenkeel::reorder
