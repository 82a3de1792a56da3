// How long a step takes whose sequences are shared by groups of ranks (context parallelism), under static and
// dynamic degrees: the model of step_model.h for the plans of context_parallel.h.
//
// Not a measurement, and not a planner.
//
//   const DegreePolicy& policy = *FindDegreePolicy("megatron");
//   absl::StatusOr<std::vector<uint32_t>> degrees = DegreesOfARun(policy, job, longest, model, machine);
//   // Of which a run takes the one that is fastest over all its steps:
//   for (uint32_t degree : *degrees) {
//     absl::StatusOr<StepFigures> figures = ModelDegrees(policy, job, samples, model, machine, degree);
//     figures->groups;   // which ranks ran together, from when to when
//   }
//
// The model:
// - An llm rank is a replica of the model, of `gpus_per_stage` GPUs; degrees are in ranks. The microbatch
//   capacity, the batching and the algorithms of the job's phases play no part: memory alone says what a
//   microbatch holds.
// - Sequences cost the llm's FLOPs. Keys and values of all its layers go round a group's ring as often as
//   FLOPs are computed: forward, twice for the backward (with their gradients), and for the recomputation.
// - Groups are put on nodes, the largest first, each where it just fits; a ring that crosses nodes has the
//   bandwidth between nodes. Planners take groups of no more ranks than a node has to lie within one, which
//   is not so where groups do not fill nodes: each policy plans once like this and once as if every ring
//   went between nodes, and the plan that takes less is run.
// - A rank holds its share of all weights, gradients and optimizer states (DHP 4.2: ZeRO-3), and the
//   activations of the tokens that it has of a microbatch: per token, layer and hidden dimension as in
//   step_model.h, with recomputation 2 bytes and one layer's 34. Weights that are gathered layer by layer
//   keep all ranks in step, so that a microbatch lasts as long as its slowest group.
// - Trainers without a planner (DHP 6.1) run all steps with one degree, a power of two that holds the longest
//   sequence of all (DHP 6.5), and deal sequences out in turn. Megatron-LM (ZeRO-1): every rank holds all
//   weights and gradients and its share of the optimizer's states, and groups wait for each other at the end
//   of the step only. DeepSpeed (ZeRO-3, Ulysses): memory as above, all ranks in step; queries, keys, values
//   and outputs of every layer change ranks all-to-all, forward, backward and in the recomputation, and no
//   attention hides it. Heads go to ranks whole: a group has at most as many ranks as there are heads, and
//   its attention lasts as long as the rank with most of them.
// - Static degrees with hindsight are no trainer's: the best degree for every step by itself, sequences to
//   the group that has least to do, memory as the planners have it.
// - Encoders are taken as spread evenly over all ranks beforehand, the same for every policy; what they
//   hold is not counted.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "advise/step_model.h"
#include "advise/training_model.h"
#include "core/job.h"
#include "core/plan.h"
#include "reorder/context_parallel/context_parallel.h"

namespace evenkeel::advise {

struct DegreePolicy {
  std::string_view name;
  std::string_view says;       // one line
  std::string_view algorithm;  // of context_parallel.h; empty: what trainers do without a planner
  bool powers_of_two = false;
  bool ulysses = false;  // without a planner: DeepSpeed, else Megatron-LM

  // One degree for all steps of a run, instead of what each step asks for.
  bool one_degree() const { return algorithm.empty(); }
  // One degree for all sequences of a step.
  bool is_static() const { return one_degree() || algorithm.starts_with("static"); }
};

// From static degrees to everything.
std::span<const DegreePolicy> DegreePolicies();
const DegreePolicy* FindDegreePolicy(std::string_view name);  // null where there is none
std::string DegreePolicyNames();

// The step's sequences as a problem in seconds and bytes of one GPU, all rings of one bandwidth (bytes per
// second), on one node. InvalidArgument: the model lacks a phase of the job; a machine without speed or
// memory; a job with pipeline stages.
absl::StatusOr<reorder::ContextParallelInput> SequencesOf(const Job& job, const StepSamples& samples,
                                                          const TrainingModel& model, const Machine& machine,
                                                          double bandwidth);

// Tokens of the longest sequence; 0 where there is none.
uint64_t LongestOf(std::span<const SampleLengths> samples);

// The degrees among which a run chooses whose longest sequence has so many tokens: with one_degree() those
// that hold it, ascending; else 0 alone. InvalidArgument: as SequencesOf, and no degree holds it.
absl::StatusOr<std::vector<uint32_t>> DegreesOfARun(const DegreePolicy& policy, const Job& job,
                                                    uint64_t longest, const TrainingModel& model,
                                                    const Machine& machine);

// `degree`: one of DegreesOfARun, which holds the step's sequences.
// InvalidArgument also: a sequence that does not fit on all ranks together, or into a group of that degree;
// more ranks than PlanContextParallel takes.
absl::StatusOr<StepFigures> ModelDegrees(const DegreePolicy& policy, const Job& job,
                                         const StepSamples& samples, const TrainingModel& model,
                                         const Machine& machine, uint32_t degree);

}  // namespace evenkeel::advise
