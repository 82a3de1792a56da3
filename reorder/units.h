// The planner's working copy of a step: what it reads often, laid out by phase.
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
  std::vector<Load> cost;
  std::vector<uint32_t> rank;
  std::vector<uint32_t> microbatch;
};

// The items of one encoder phase; arrays are [items of the phase], by sample and then ordinal.
struct EncoderUnits {
  std::vector<uint32_t> begin;  // [samples + 1]: where each sample's items begin
  std::vector<uint32_t> item;   // into Plan::items
  std::vector<uint32_t> sample;
  std::vector<Load> cost;
  std::vector<uint32_t> rank;        // where it is computed
  std::vector<Load> cost_of_sample;  // [samples]
};

// Fills `phase_plan.order` and `.begin` and the places of the samples: in the sampler's order within a
// microbatch.
void OrderSamples(const LlmUnits& llm, Plan& plan, PhasePlan& phase_plan);

// The same for the items of an encoder: images before videos, then in the order of the llm. Appends dummies
// where a rank and microbatch has fewer than `min_items`.
void OrderItems(const EncoderUnits& units, const PhasePlan& llm, uint32_t min_items, const SampleItem& dummy,
                Plan& plan, PhasePlan& phase_plan);

// The routes of one encoder phase, one per exchange, appended to `plan.routes`. Places are final.
void ComposeRoutes(const PhasePlan& encoder, const PhasePlan& llm, Plan& plan);

}  // namespace evenkeel::reorder
