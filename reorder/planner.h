// lengths -> plan. Pure, deterministic, single-threaded: the same input gives the same plan on every build
// and CPU.
//
//   EVENKEEL_ASSIGN_OR_RETURN(Plan plan, MakePlan(job, step_samples, dummy_lengths));
//   assert(PlanCheck(job, step_samples, plan).ok());
#pragma once

#include <array>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"

namespace evenkeel::reorder {

// Lengths and medium of each phase's dummy item, by the phase's number.
using DummyItems = std::array<SampleItem, kMaxPhases>;

// InvalidArgument: the job's phases have an algorithm that does not exist or an option that it cannot keep.
// MakePlan finds the same; this finds it before there is a step.
absl::Status CheckJob(const Job& job);

// InvalidArgument: a sample longer than the microbatch capacity (the index excludes those), an item of a
// phase that the job does not have, an option of a phase that its algorithm cannot keep.
absl::StatusOr<Plan> MakePlan(const Job& job, const StepSamples& samples, const DummyItems& dummies);

// What a caller may ask for beyond the job.
struct PlanOptions {
  std::span<const uint32_t> llm_rank;  // [samples] a placement of the llm that is given; empty: free
  // Fill each rank's microbatches in the order of the samples instead of balancing them.
  bool microbatches_in_order = false;
  // With pipeline stages, by which algorithm of microbatch_order.h the llm's microbatches are ordered.
  std::string microbatch_order = "local_search";
};

// InvalidArgument also: a given rank that the llm does not have; an unknown order.
absl::StatusOr<Plan> MakePlan(const Job& job, const StepSamples& samples, const DummyItems& dummies,
                              const PlanOptions& options);

// Every invariant of a plan, in one place: each unit exactly once, positions without gaps, no capacity
// exceeded, the same number of microbatches everywhere, least items kept, routes mutually consistent and
// complete. Internal, with the first invariant that is broken.
absl::Status PlanCheck(const Job& job, const StepSamples& samples, const Plan& plan);

}  // namespace evenkeel::reorder
