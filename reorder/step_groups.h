// Dynamic context parallelism in the plan of a step: the groups of every microbatch, and where the samples are.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(StepGroups step, PlanStepGroups(job, layout, llm, encoders));
//     llm.rank = step.rank;   // the first rank of the sample's group
//
// Thread safety: pure functions of their input.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "reorder/layout.h"
#include "reorder/units.h"

namespace evenkeel::reorder {

struct StepGroups {
  uint32_t num_microbatches = 1;
  std::vector<RankGroup> groups;     // as Plan::groups
  std::vector<uint32_t> rank;        // [samples]
  std::vector<uint32_t> microbatch;  // [samples]
};

// InvalidArgument: an algorithm that does not exist, or costs of the llm that are beyond all measure. OK without groups.
absl::Status CheckGroups(const Job& job, const Layout& layout);

// `llm.tokens` and the encoders' units are filled. Where media attend fully, a sample's attention is that of a causal mask
// and, for every image and video, that of its rows once more: DHP's eta is the sum of squared rows over the squared length.
// InvalidArgument: a sample that the largest group does not hold, or costs that are not finite.
absl::StatusOr<StepGroups> PlanStepGroups(const Job& job, const Layout& layout, const LlmUnits& llm,
                                          const std::vector<EncoderUnits>& encoders);

// Sets what every rank has, where the members of a group share its samples evenly: load_after and tokens_after.
void MeasureGroupLoads(const Cost& cost, const LlmUnits& llm, std::span<const RankGroup> groups,
                       PhasePlan& llm_plan);

}  // namespace evenkeel::reorder
