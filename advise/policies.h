// Ways to plan a step, from no balancing to all that the planner offers. They differ only in algorithms and
// planner options, so that their plans can be compared.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(Plan plan, PlanByPolicy(*FindPolicy("llm_only"), job, samples, dummies));
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
  kTailored,  // OrchMLLM's choice: greedy_padded for a padded phase, greedy_packed for others
  kPacked,    // greedy_packed for every phase
  kPadded,    // greedy_padded for every phase
  kIntraMicrobatch,
  kWithoutMoving,
};

struct Policy {
  std::string_view name;
  std::string_view summary;  // one line for a report
  Balancing llm = Balancing::kNone;
  Balancing encoders = Balancing::kNone;
  bool node_wise = false;
  bool in_order = false;             // samples fill each rank's microbatches in their order
  bool shuffled = false;             // samples are shuffled first
  std::string_view order = "given";  // of the microbatches of a pipeline
  bool by_encoders = false;          // the llm's balancing counts the encoders' work, and not the llm's
  bool fills = false;                // samples fill microbatches in their order, which ranks take in turn
  bool packs = false;                // samples are packed into bins first, each of which is a microbatch
  bool as_job = false;               // the job's own algorithms, and its bins; all of the above is left out
};

// All policies, the simplest first.
std::span<const Policy> Policies();
const Policy* FindPolicy(std::string_view name);  // null: no policy has this name
std::string PolicyNames();

// Plans with the policy's algorithms instead of the job's. Bins that the job has packed are opened, and their capacity is
// that of a microbatch, except for the policy `job`. Errors of MakePlan.
absl::StatusOr<Plan> PlanByPolicy(const Policy& policy, const Job& job, const StepSamples& samples,
                                  const reorder::DummyItems& dummies);

}  // namespace evenkeel::advise
