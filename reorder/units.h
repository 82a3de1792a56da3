// The planner's working copy of a step: columns of what it reads often, for any number of encoder phases. An
// encoder is known by its number in the layout; which phase of the job that is, only the caller knows.
//
// Thread safety: plain values; needs none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.h"
#include "reorder/balance/balance.h"
#include "reorder/layout.h"
#include "reorder/routes.h"

namespace evenkeel::reorder {

// The samples; columns are [samples], in the sampler's order. The caller fills `tokens` and `bin_begin`.
struct LlmUnits {
  std::vector<uint32_t> tokens;  // aligned
  // Of preference pairs, the tokens of the chosen sequence among them; of other samples 0. Empty: there are no pairs.
  std::vector<uint32_t> chosen;
  std::vector<Load> load;  // the cost in integers
  std::vector<uint32_t> rank;
  std::vector<uint32_t> microbatch;
  std::vector<uint32_t> position;  // within rank and microbatch
  // [bins + 1] Where samples come in bins, the begin of each; else empty, and the planner places and splits them.
  std::span<const uint32_t> bin_begin = {};
  // Rows of the llm are sequences: the rejected ones of pairs follow all others of their microbatch.
  bool rejected_last = false;

  uint32_t ChosenOf(size_t s) const { return chosen.empty() ? 0 : chosen[s]; }
};

// The items of one encoder phase; columns are [items of the phase], by sample and then ordinal. The caller
// fills everything up to `dummy`.
struct EncoderUnits {
  std::vector<uint32_t> item;  // number among the items of all phases
  std::vector<uint32_t> sample;
  std::vector<uint32_t> length;  // cost_length
  std::vector<uint32_t> rows;    // output_rows
  std::vector<uint8_t> turn;     // by medium: within a rank and microbatch images, then videos, then audio
  std::vector<bool> rejected;  // with LlmUnits::rejected_last: of the rejected sequence of a pair; else empty
  SampleItem dummy;
  std::vector<Load> load;            // the cost in integers
  std::vector<Load> load_of_sample;  // [samples]
  std::vector<uint32_t> rank;        // where it is computed
  std::vector<uint32_t> position;    // within rank and microbatch
  std::vector<PlannedItem> dummies;  // their numbers follow those of all items and of earlier phases' dummies

  void Append(uint32_t item_number, uint32_t of_sample, const SampleItem& appended) {
    item.push_back(item_number);
    sample.push_back(of_sample);
    length.push_back(appended.lengths.cost_length);
    rows.push_back(appended.lengths.output_rows);
    turn.push_back(TurnOf(appended.medium));
  }
  static constexpr uint32_t kTurns = 3;
  static uint8_t TurnOf(Medium medium) { return static_cast<uint8_t>(static_cast<int>(medium) - 1); }
};

// Fills `phase_plan.order` and `.begin` and the positions of the samples: in the sampler's order within a
// microbatch.
void OrderSamples(LlmUnits& llm, PhasePlan& phase_plan);

// The same for the items of an encoder: images before videos, then in the order of the llm; where a rank and
// microbatch has fewer than `min_items`, dummies, numbered from `first_dummy`. Returns the routes of the
// phase, one per exchange; what they lead from is left to the caller.
std::vector<Route> OrderItems(const LlmUnits& llm, const PhasePlan& llm_plan, const GroupsOfRoute& groups,
                              uint32_t min_items, uint32_t first_dummy, EncoderUnits& units,
                              PhasePlan& phase_plan);

}  // namespace evenkeel::reorder
