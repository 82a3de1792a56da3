// The planner's working copy of a step: what it reads often, in arrays of its own. A plan's structs are wide,
// and everything here is read in an order that is not theirs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan.h"
#include "reorder/balance.h"
#include "reorder/layout.h"

namespace evenkeel::reorder {

// The samples; arrays are [samples], in the sampler's order.
struct LlmUnits {
  std::vector<uint32_t> tokens;  // aligned
  std::vector<double> cost;
  std::vector<Load> load;  // the cost in integers
  std::vector<uint32_t> rank;
  std::vector<uint32_t> microbatch;
};

// The items of one encoder phase; arrays are [items of the phase], by sample and then ordinal.
struct EncoderUnits {
  std::vector<uint32_t> begin;  // [samples + 1]: where each sample's items begin
  std::vector<uint32_t> item;   // into Plan::items
  std::vector<uint32_t> sample;
  std::vector<uint32_t> length;  // cost_length
  std::vector<uint32_t> rows;    // output_rows
  std::vector<uint8_t> video;
  std::vector<double> cost;
  std::vector<Load> load;             // the cost in integers
  std::vector<Load> load_of_sample;   // [samples]
  std::vector<uint32_t> rank;         // where it is computed
  std::vector<uint64_t> bucket_rows;  // [ranks * microbatches], dummies included

  // The same items in the order in which the llm takes them, once both are in order.
  struct Outgoing {
    uint64_t first_row = 0;  // in the encoder output of its bucket
    uint32_t rows = 0;
    uint32_t bucket = 0;  // rank * microbatches + microbatch
  };
  std::vector<Outgoing> outgoing;
  std::vector<uint32_t> outgoing_begin;  // [llm ranks * microbatches + 1]
};

// Fills `phase_plan.order` and `.begin` and the places of the samples: in the sampler's order within a
// microbatch.
void OrderSamples(const LlmUnits& llm, Plan& plan, PhasePlan& phase_plan);

// The same for the items of an encoder, and their rows: images before videos, then in the order of the llm.
// Appends dummies where a rank and microbatch has fewer than `min_items`.
void OrderItems(const LlmUnits& llm, const PhasePlan& llm_plan, uint32_t min_items, const SampleItem& dummy,
                EncoderUnits& units, Plan& plan, PhasePlan& phase_plan);

// The routes of one encoder phase, one per exchange, appended to `plan.routes`, once its items are in order.
void ComposeRoutes(const EncoderUnits& units, const PhasePlan& encoder, const PhasePlan& llm, Plan& plan);

}  // namespace evenkeel::reorder
