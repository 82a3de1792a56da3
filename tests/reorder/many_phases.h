// Steps with any number of encoder phases, for the planner's core (reorder/plan_phases.h): the job of core/
// cannot name them yet. Pure functions of a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/status.h"
#include "reorder/plan_phases.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {

struct ManyPhases {
  Job job;                      // without phases
  std::vector<PhaseSpec> spec;  // the llm's, then the encoders'
  LlmUnits llm;
  std::vector<EncoderUnits> encoders;
  size_t num_items = 0;

  absl::StatusOr<Layout> MakeLayout() const {
    std::vector<const PhaseSpec*> encoder_specs;
    for (size_t p = 1; p < spec.size(); ++p) encoder_specs.push_back(&spec[p]);
    return reorder::MakeLayout(job, spec[0], encoder_specs);
  }
  absl::StatusOr<PlannedPhases> Plan(const PlanOptions& options = {}) {
    EVENKEEL_ASSIGN_OR_RETURN(const Layout layout, MakeLayout());
    return PlanPhases(job, layout, /*step=*/0, options, llm, encoders);
  }
};

// All phases on the same ranks, eight a node; no samples yet.
inline ManyPhases PhasesOn(uint32_t ranks, size_t num_encoders) {
  ManyPhases step;
  step.job.ranks_per_node = 8;
  step.spec.resize(1 + num_encoders);
  for (PhaseSpec& spec : step.spec) {
    spec.ranks.resize(ranks);
    std::iota(spec.ranks.begin(), spec.ranks.end(), 0u);
  }
  for (size_t p = 1; p < step.spec.size(); ++p) step.spec[p].phase = kVisionPhase;  // for messages only
  step.encoders.resize(num_encoders);
  return step;
}

// Samples of an omni trace; the items of each medium are of any of the encoders with the medium's parity, so
// that a sample may have items of several.
inline ManyPhases DrawManyPhases(uint64_t seed, uint32_t ranks, uint32_t per_rank, size_t num_encoders) {
  ManyPhases step = PhasesOn(ranks, num_encoders);
  Random random(seed);
  for (uint32_t s = 0; s < ranks * per_rank; ++s) {
    const SampleLengths sample = DrawOmniSample(random);
    step.llm.tokens.push_back(sample.llm_length);
    for (const SampleItem& item : sample.items) {
      size_t encoder = random.Below(num_encoders);
      const size_t parity = item.medium == Medium::kAudio ? 1 : 0;
      if (encoder % 2 != parity) encoder = (encoder + 1) % num_encoders;
      step.encoders[encoder].Append(static_cast<uint32_t>(step.num_items++), s, item);
    }
  }
  return step;
}

}  // namespace evenkeel::reorder
