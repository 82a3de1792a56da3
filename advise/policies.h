// What people do with a step, from nothing to all that the planner can, as jobs and options that differ in
// nothing else: for comparisons.
//
//   EVENKEEL_ASSIGN_OR_RETURN(Plan plan, PlanByPolicy(*FindPolicy("llm_only"), job, samples, dummies));
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reorder/planner.h"

namespace evenkeel::advise {

// How an algorithm is chosen for a phase.
enum class Balancing : uint8_t {
  kNone,
  kTailored,  // greedy_padded where the phase is padded, else greedy_packed: OrchMLLM's choice
  kPacked,    // greedy_packed for every phase
  kPadded,    // greedy_padded for every phase
  kIntraMicrobatch,
  kWithoutMoving,
};

struct Policy {
  std::string_view name;
  std::string_view says;  // one line
  Balancing llm = Balancing::kNone;
  Balancing encoders = Balancing::kNone;
  bool node_wise = false;
  bool in_order = false;             // each rank's samples fill its microbatches as they come
  bool shuffled = false;             // samples are dealt out in another order than they come in
  std::string_view order = "given";  // of a pipeline's microbatches
};

// From nothing to everything.
std::span<const Policy> Policies();
const Policy* FindPolicy(std::string_view name);  // null where there is none
std::string PolicyNames();

// The job's own algorithms give way to the policy's. Errors of MakePlan.
absl::StatusOr<Plan> PlanByPolicy(const Policy& policy, const Job& job, const StepSamples& samples,
                                  const reorder::DummyItems& dummies);

}  // namespace evenkeel::advise
