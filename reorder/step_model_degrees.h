// How long a step takes whose sequences are shared by groups of ranks (context parallelism), under static and
// dynamic degrees: the model of step_model.h for the plans of context_parallel.h.
//
// Not a measurement, and not a planner.
//
//   const DegreePolicy& policy = *FindDegreePolicy("dhp");
//   EVENKEEL_ASSIGN_OR_RETURN(StepFigures figures, ModelDegrees(policy, job, samples, model, machine));
//   figures.groups;   // which ranks ran together, from when to when
//
// The model:
// - An llm rank is a replica of the model, of `gpus_per_stage` GPUs; degrees are in ranks. The microbatch
//   capacity, the batching and the algorithms of the job's phases play no part: memory alone says what a
//   microbatch holds.
// - Sequences cost the llm's FLOPs. Keys and values of all its layers go round a group's ring as often as
//   FLOPs are computed: forward, twice for the backward (with their gradients), and for the recomputation.
// - Groups are put on nodes, the largest first, each where it just fits; a ring that crosses nodes has the
//   bandwidth between nodes. Planners know one bandwidth for all rings: each policy plans once with that
//   within nodes and once with that between them, and the plan that takes less is run.
// - A rank holds its share of all weights, gradients and optimizer states (DHP 4.2: ZeRO-3), and the
//   activations of the tokens that it has of a microbatch: per token, layer and hidden dimension as in
//   step_model.h, with recomputation 2 bytes and one layer's 34. Weights that are gathered layer by layer
//   keep all ranks in step, so that a microbatch lasts as long as its slowest group.
// - Without a planner (DHP 6.1: Megatron-LM, ZeRO-1) every rank holds all weights and gradients and its share
//   of the optimizer's states, and groups wait for each other at the end of the step only.
// - Encoders are taken as spread evenly over all ranks beforehand, the same for every policy; what they hold
// is
//   not counted.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "reorder/context_parallel.h"
#include "reorder/step_model.h"
#include "reorder/training_model.h"

namespace evenkeel {

struct DegreePolicy {
  std::string_view name;
  std::string_view says;       // one line
  std::string_view algorithm;  // of context_parallel.h; empty: what trainers do without a planner
  bool powers_of_two = false;
};

// From static degrees to everything.
std::span<const DegreePolicy> DegreePolicies();
const DegreePolicy* FindDegreePolicy(std::string_view name);  // null where there is none
std::string DegreePolicyNames();

// The step's sequences as a problem in seconds and bytes of one GPU, all rings of one bandwidth (bytes per
// second). InvalidArgument: the model lacks a phase of the job; a machine without speed or memory; a job with
// pipeline stages.
absl::StatusOr<ContextParallelInput> SequencesOf(const Job& job, const StepSamples& samples,
                                                 const TrainingModel& model, const Machine& machine,
                                                 double bandwidth);

// InvalidArgument also: a sequence that does not fit on all ranks together; more ranks than
// PlanContextParallel takes.
absl::StatusOr<StepFigures> ModelDegrees(const DegreePolicy& policy, const Job& job,
                                         const StepSamples& samples, const TrainingModel& model,
                                         const Machine& machine);

}  // namespace evenkeel
