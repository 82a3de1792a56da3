// How long a planned step takes, what it keeps waiting and what it holds: a model, for comparing plans.
//
// Not a measurement, and not a way to choose a plan: it adds up costs, simulates the pipeline exactly and
// moves rows at the machine's bandwidths. Kernels run at the peak, so that what is missing from a full MFU is
// what the plan loses.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(StepFigures figures, ModelStep(job, plan, model, machine));
//     figures.mfu;
//
// The model:
// - A packed batch computes its units' forward FLOPs, a padded one its count times its longest; the job's
//   pad_to adds tokens without attention. A backward is twice its forward, with recomputation three times.
// - Every exchange of rows is a barrier, so an encoder lasts as long as its busiest rank, exchange by
//   exchange, and phases follow each other. Without encoders that run once per microbatch the llm has one
//   barrier, at its end.
// - With pipeline stages, an llm rank is a pipeline of that many, cut as CutIntoStages does; encoders that
//   run once per microbatch are its first layers. The step lasts as long as its slowest pipeline: they wait
//   for each other at its end only.
// - An exchange takes as long as its busiest rank sends or receives, rows of the llm's width in bf16;
//   gradients take the same way back.
// - A GPU holds its share of weights, gradients and Adam's states (16 bytes a parameter, sharded over all
//   ranks of the phase; with pipeline stages only the optimizer's 12 are), and activations: 34 bytes a token,
//   layer and hidden dimension (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
//   Models", 2022, with an attention that keeps no scores), with recomputation 2 and one layer's 34. An
//   encoder holds all its batches until their backward, the llm one microbatch, a pipeline's first stage as
//   many as it has stages.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "advise/training_model.h"
#include "core/job.h"
#include "core/plan.h"
#include "reorder/pipeline/pipeline_schedule.h"

namespace evenkeel::advise {

inline constexpr double kBytesPerValue = 2;    // bf16
inline constexpr double kStateBytes = 16;      // of a parameter: bf16 weight and gradient, Adam's in f32
inline constexpr double kOptimizerBytes = 12;  // of them
inline constexpr double kLayerActivationBytes = 34;  // of a token and hidden dimension

struct PhaseFigures {
  Phase phase = Phase::kLlm;
  std::vector<double> seconds;  // [ranks] forward and backward, waiting excluded
  double max_over_mean = 1;
  double pad_ratio = 0;  // of the tokens computed, padding
};

// With context parallelism: ranks that share sequences, from `start` to `end` of the step, in seconds.
struct GroupFigures {
  std::vector<uint32_t> ranks;  // of the llm
  uint32_t microbatch = 0;
  uint64_t tokens = 0;
  double start = 0;
  double end = 0;
};

struct StepFigures {
  double iteration_seconds = 0;
  double exchange_seconds = 0;   // of that
  double bubble_share = 0;       // of all GPUs' time, spent waiting: for a pipeline, a barrier or rows
  double pad_ratio = 0;          // of the tokens computed in all phases, padding
  double mfu = 0;                // FLOPs of the model, padding and recomputation excluded, over the peak's
  double inter_node_bytes = 0;   // encoder outputs on their way to the llm, without their gradients
  double peak_memory_bytes = 0;  // of the fullest GPU
  std::vector<PhaseFigures> phases;   // in the order of the plan
  reorder::PipelineTimeline slowest;  // with pipeline stages: of the llm rank that takes longest
  std::vector<GroupFigures> groups;   // with context parallelism: by microbatch
};

// InvalidArgument: the model has no such phase as the plan; a machine without speed; see CheckPipeline.
absl::StatusOr<StepFigures> ModelStep(const Job& job, const Plan& plan, const TrainingModel& model,
                                      const Machine& machine);

// The job with the model's costs in place of its own, so that planners balance what the model counts.
// InvalidArgument: the model lacks a phase of the job.
absl::StatusOr<Job> WithCostsOf(const TrainingModel& model, Job job);

// InvalidArgument: a machine without speed, bandwidth, memory or GPUs.
absl::Status CheckMachine(const Machine& machine);
// InvalidArgument: the model lacks a phase of the job.
absl::Status CheckPhases(const Job& job, const TrainingModel& model);

}  // namespace evenkeel::advise
