// The planner's core, for any number of encoder phases: samples to llm ranks, microbatches, their order,
// items to encoder ranks, positions and routes. An encoder is known by its number in the layout, not by its
// name; planner.cc translates between this and the structs of core/.
//
//   EVENKEEL_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(job, llm_spec, encoder_specs));
//   LlmUnits llm{.tokens = ...};
//   std::vector<EncoderUnits> encoders(layout.encoders.size());
//   encoders[4].Append(item, sample, {...});
//   EVENKEEL_ASSIGN_OR_RETURN(PlannedPhases planned, PlanPhases(job, layout, step, options, llm, encoders));
//   encoders[4].rank;   // [items of the phase]
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

// What is not in the units. `PhasePlan::phase`, `Route::from` and `Route::to` are left to the caller.
struct PlannedPhases {
  uint32_t num_microbatches = 1;  // of the llm
  PhasePlan llm;
  std::vector<PhasePlan> encoders;         // in the order of the layout
  std::vector<std::vector<Route>> routes;  // of every encoder, one per exchange
};

// InvalidArgument: an option that the phase's algorithm cannot keep. The algorithm is one of reorder/.
absl::Status CheckOptions(const PhaseSpec& spec);

// Fills the columns of the units that the caller has not. Of the job everything except `phases` is read;
// `step` goes into the seed of the order of microbatches. InvalidArgument: an option of a phase that its
// algorithm cannot keep; a given rank that the llm does not have; an unknown order.
absl::StatusOr<PlannedPhases> PlanPhases(const Job& job, const Layout& layout, uint64_t step,
                                         const PlanOptions& options, LlmUnits& llm,
                                         std::vector<EncoderUnits>& encoders);

}  // namespace evenkeel::reorder
