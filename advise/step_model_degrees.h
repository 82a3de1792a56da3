// A model of how long a step takes if groups of ranks share sequences (context parallelism), with static and
// dynamic degrees: step_model.h for the plans of context_parallel.h.
//
// It is not a measurement, and not a planner.
//
// Example:
//     const DegreePolicy& policy = *FindDegreePolicy("megatron");
//     EVENKEEL_ASSIGN_OR_RETURN(std::vector<uint32_t> degrees,
//                               DegreesOfARun(policy, job, longest, model, machine));
//     // A run uses the degree that is fastest over all its steps.
//     for (uint32_t degree : degrees) {
//       EVENKEEL_ASSIGN_OR_RETURN(StepFigures figures,
//                                 ModelDegrees(policy, job, samples, model, machine, degree));
//       figures.groups;  // which ranks ran together, from when to when
//     }
//
// The model:
// - An llm rank is a replica of the model, of `gpus_per_stage` GPUs. Degrees are numbers of ranks. The job's
//   microbatch capacity, batching and algorithms are ignored: memory alone bounds a microbatch.
// - Sequences cost the llm's FLOPs. Keys and values of all layers pass around a group's ring as often as
//   FLOPs are computed: once for the forward, twice for the backward (with their gradients), once for the
//   recomputation.
// - Groups are placed on nodes, the largest first, each on the fullest node with room. A ring that crosses
//   nodes has the bandwidth between nodes. Planners assume that a group with at most as many ranks as a node
//   lies within one node, which is wrong if groups do not fill nodes. So each policy plans twice, once with
//   this assumption and once as if every ring crossed nodes, and the faster plan is used.
// - A rank has its share of all weights, gradients and optimizer states (DHP 4.2: ZeRO-3), and the
//   activations of its tokens of one microbatch, per token, layer and hidden dimension as in step_model.h.
//   Weights are gathered layer by layer, which keeps all ranks in step, so a microbatch takes as long as its
//   slowest group.
// - Trainers without a planner (DHP 6.1) use one degree for all steps: a power of two that fits the longest
//   sequence (DHP 6.5). Sequences are assigned in turn. Megatron-LM (ZeRO-1): every rank has all weights and
//   gradients and its share of the optimizer's states, and groups wait for each other only at the end of the
//   step. DeepSpeed (ZeRO-3, Ulysses): memory as above, all ranks in step; queries, keys, values and outputs
//   of every layer are exchanged all-to-all in the forward, the backward and the recomputation, not hidden by
//   attention. Heads are not split: a group has at most as many ranks as there are heads, and attention takes
//   as long as the rank with the most heads.
// - Megatron-Core's hybrid degrees: a run chooses how many tokens a rank may hold, what memory allows or a power of two
//   less. Memory as for Megatron-LM. Groups run one sequence at a time, and ranks wait for each other after every round.
//   Its scheduler has no pipeline stages yet: with them it is what it would be.
// - With pipeline stages an llm rank is all of its stages, and a group is a pipeline over its ranks: every stage has its
//   share of the layers, and a ring within the stage for them, whose ranks are on the nodes that the llm's ranks are on.
//   Microbatches are simulated exactly (reorder/pipeline/pipeline_model.h), each with the time of its group; waiting for
//   the ring belongs to it, forward and backward alike. Where ranks are kept in step, all groups are one pipeline, whose
//   microbatches take as long as their slowest groups; Megatron-LM's groups are pipelines of their own, which wait for each
//   other at the end of the step, those of hybrid degrees after every round, which drains them. Planners see the time
//   without filling and draining. A GPU stores a stage's share of the weights. The first stage holds as many microbatches as
//   there are stages, each with its share of the layers: as much as one microbatch in all layers, as without stages.
// - A frozen phase (the job's `pipeline`) has a backward only where something before it trains, and neither gradients nor states.
// - Static degrees with hindsight exist in no trainer: the best degree for every step, sequences to the group
//   with the least work, memory as for the planners.
// - Encoders are assumed to be spread evenly over all ranks before the llm, for every policy alike. Their
//   memory is not counted.
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
#include "reorder/context_parallel/waves.h"

namespace evenkeel::advise {

struct DegreePolicy {
  std::string_view name;
  std::string_view summary;    // one line for a report
  std::string_view algorithm;  // of context_parallel.h; empty: a trainer without a planner
  bool powers_of_two = false;
  uint32_t pool =
      0;  // groups of several ranks that a run may use, which are aligned powers of two; 0: any groups
  bool ulysses = false;  // without a planner: DeepSpeed if true, else Megatron-LM
  bool hybrid = false;   // without a planner: Megatron-Core's degree for every sequence (hybrid_groups.h)

  // Groups of several degrees that stay the same for a step; memory as for Megatron-LM.
  bool is_persistent() const { return algorithm == reorder::kPersistent; }
  // One degree for all steps of a run, instead of a choice for every step.
  bool one_degree() const { return algorithm.empty() && !hybrid; }
  // One degree for all sequences of a step.
  bool is_static() const { return one_degree() || algorithm.starts_with("static"); }
};

// All policies, static degrees first.
std::span<const DegreePolicy> DegreePolicies();
const DegreePolicy* FindDegreePolicy(std::string_view name);  // null: no policy has this name
std::string DegreePolicyNames();

// The step's sequences as a problem in seconds and bytes of one GPU, on one node, with rings of `bandwidth`
// bytes per second. With stages seconds are those of a rank whose stages all work. InvalidArgument: the model lacks a phase of
// the job, the machine has no speed or memory, or a chunk of the job's pipeline has an encoder.
absl::StatusOr<reorder::ContextParallelInput> SequencesOf(const Job& job, const StepSamples& samples,
                                                          const TrainingModel& model, const Machine& machine,
                                                          double bandwidth);

// Tokens of the longest sequence; 0 if there is none.
uint64_t LongestOf(std::span<const SampleLengths> samples);

// The degrees from which a run chooses if its longest sequence has `longest` tokens. With one_degree(): those
// with enough memory for it, ascending; with hybrid degrees the numbers by which it may divide the tokens of a rank;
// otherwise only 0. InvalidArgument: as SequencesOf, or no degree has
// enough memory.
absl::StatusOr<std::vector<uint32_t>> DegreesOfARun(const DegreePolicy& policy, const Job& job,
                                                    uint64_t longest, const TrainingModel& model,
                                                    const Machine& machine);

// `degree` is one of DegreesOfARun with enough memory for the step's sequences. InvalidArgument also: a
// sequence that fits neither on all ranks together nor into a group of that degree, or more ranks than
// PlanContextParallel accepts.
absl::StatusOr<StepFigures> ModelDegrees(const DegreePolicy& policy, const Job& job,
                                         const StepSamples& samples, const TrainingModel& model,
                                         const Machine& machine, uint32_t degree);

}  // namespace evenkeel::advise
