// The planner's core, for any number of encoder phases: assigns samples to llm ranks and microbatches, orders
// them, assigns items to encoder ranks, and composes positions and routes. An encoder is identified by its
// index in the layout, not by its name; planner.cc translates between this and the structs of core/.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(job, llm_spec, {&encoder_spec}));
//     LlmUnits llm{.tokens = {512, 320}};  // two samples
//     std::vector<EncoderUnits> encoders(layout.encoders.size());
//     encoders[0].Append(/*item_number=*/0, /*of_sample=*/1, image);
//     EVENKEEL_ASSIGN_OR_RETURN(PlannedPhases planned,
//                               PlanPhases(job, layout, /*step=*/12, options, llm, encoders));
//     const std::vector<uint32_t>& rank = encoders[0].rank;  // [items of the phase]
//
// Thread safety: a pure function of its input.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "reorder/layout.h"
#include "reorder/planner.h"
#include "reorder/units.h"

namespace evenkeel::reorder {

// The results that are not in the units. The caller fills `PhasePlan::phase`, `Route::from` and `Route::to`.
struct PlannedPhases {
  uint32_t num_microbatches = 1;  // per llm rank
  PhasePlan llm;
  std::vector<PhasePlan> encoders;         // in the order of the layout
  std::vector<std::vector<Route>> routes;  // of every encoder, one per exchange
  std::vector<RankGroup> groups = {};      // as Plan::groups
};

// InvalidArgument: the phase has an option that its algorithm does not support. The algorithm must exist.
absl::Status CheckOptions(const PhaseSpec& spec);

// Fills the columns of the units that the caller has left empty. Uses all of the job except `phases`; `step`
// is part of the seed of the order of microbatches. InvalidArgument: a phase has an option that its algorithm
// does not support; a given rank does not exist in the llm; an unknown order. ResourceExhausted: a capacity that no
// placement that was found keeps, also with more microbatches where the phase runs once in each.
absl::StatusOr<PlannedPhases> PlanPhases(const Job& job, const Layout& layout, uint64_t step,
                                         const PlanOptions& options, LlmUnits& llm,
                                         std::vector<EncoderUnits>& encoders);

}  // namespace evenkeel::reorder
