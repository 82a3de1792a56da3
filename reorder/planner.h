// lengths -> plan. Pure, deterministic, single-threaded: the same input gives the same plan on every build
// and CPU.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(Plan plan, MakePlan(job, step_samples, dummy_items));
//     EVENKEEL_RETURN_IF_ERROR(PlanCheck(job, step_samples, plan));
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <map>
#include <set>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"

namespace evenkeel::reorder {

// Lengths and medium of each phase's dummy item, by the phase's number.
using DummyItems = std::array<SampleItem, kMaxPhases>;

// InvalidArgument: a phase of the job has an unknown algorithm, or an option that its algorithm does not
// support. MakePlan reports the same; this reports it before there is a step.
absl::Status CheckJob(const Job& job);

// By which balancer's method the units of each phase have their ranks: the phase's own, or what the default took in its
// place where that is lighter (docs/planner.md); of several exchanges each name once.
using MethodsTaken = std::map<Phase, std::set<std::string>>;

// Options that are not in the job, for tools and benchmarks.
struct PlanOptions {
  std::span<const uint32_t> llm_rank;  // [samples] a given placement of the llm; empty: chosen by the planner
  // Fill each rank's microbatches in the order of the samples instead of balancing them.
  bool microbatches_in_order = false;
  // With pipeline stages: the algorithm of microbatch_order.h that orders the llm's microbatches; empty: the job's.
  std::string microbatch_order;
  // With a section `pipeline`: of several ways to level a rank's microbatches take that with the shortest simulated step.
  bool compares_splits = true;
  // Place samples by what the encoders have of them, as if every sample took the llm as long.
  bool llm_by_encoders = false;
  // Where nothing balances an encoder on ranks that the llm does not have, deal its items to them in turn.
  bool apart_in_turn = false;
  MethodsTaken* methods = nullptr;  // filled where it is given; not owned
};

// InvalidArgument: a sample is longer than the microbatch capacity (the index excludes those), an item is of
// a phase that the job does not have, a phase has an option that its algorithm does not support, a given rank
// does not exist in the llm, or an unknown order. ResourceExhausted: a phase's capacity cannot be kept.
absl::StatusOr<Plan> MakePlan(const Job& job, const StepSamples& samples, const DummyItems& dummies,
                              const PlanOptions& options = {});

// Checks every invariant of a plan, in one place: each unit occurs exactly once, positions have no gaps, no
// capacity is exceeded, all ranks have the same number of microbatches, minimum items are kept, routes are
// consistent and complete. Internal, with the first invariant that is violated.
absl::Status PlanCheck(const Job& job, const StepSamples& samples, const Plan& plan);

}  // namespace evenkeel::reorder
