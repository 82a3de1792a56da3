// A model of how long a planned step takes, how much of it is waiting, and how much memory it needs: for
// comparing plans.
//
// It is not a measurement, and it chooses no plan: it adds up costs, simulates the pipeline exactly and moves
// rows at the machine's bandwidths. Kernels run at their peak, so that whatever is missing from a full MFU is
// lost by the plan.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(StepFigures figures, ModelStep(job, plan, model, machine));
//     figures.mfu;
//
// The model:
// - A packed batch costs the forward FLOPs of its units. A padded batch costs its number of units times its
//   longest unit. The job's pad_to adds tokens without attention. A backward costs two forwards, with
//   recomputation three.
// - Every exchange of rows is a barrier, so an encoder takes as long as its busiest rank, exchange by
//   exchange, and phases run one after another. If no encoder runs once per microbatch, the llm has one
//   barrier, at its end.
// - With pipeline stages, an llm rank is a pipeline (reorder/pipeline/pipeline_model.h): as the job describes it, else
//   its layers are cut into stages of equal time, and encoders that run once per microbatch are its first layers. The
//   step takes as long as its slowest pipeline, because pipelines wait for each other only at the end.
// - Encoders on ranks of their own have GPUs of their own, one per rank and tensor parallel GPU. Where they run once per
//   microbatch they are a stage before the llm's, also where the llm has a single stage, and their rows travel while
//   other microbatches are computed: only one exchange is waited for. An interleaved llm hides them: the step takes at
//   least as long as they do, and begins with one of their microbatches.
// - A frozen phase has a backward only where something before it trains, and neither gradients nor optimizer states.
// - An exchange takes as long as its busiest rank needs to send or receive, with rows of the llm's width in
//   bf16. Gradients take the same way back.
// - A GPU has its share of weights, gradients and Adam's states: 16 bytes a parameter, sharded over all ranks
//   of the phase; with pipeline stages only the optimizer's 12 bytes are sharded.
// - Activations are 34 bytes a token, layer and hidden dimension (Korthikanti et al., "Reducing Activation
//   Recomputation in Large Transformer Models", 2022, with an attention that keeps no scores), with
//   recomputation 2 bytes and one layer's 34. An encoder keeps all its batches until their backward, the llm
//   one microbatch, a pipeline's first stage as many as it has stages.
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

inline constexpr double kBytesPerValue = 2;  // bf16
// bytes of a parameter: bf16 weight and gradient, Adam's states in f32
inline constexpr double kStateBytes = 16;
inline constexpr double kOptimizerBytes = 12;        // the optimizer's share of kStateBytes
inline constexpr double kLayerActivationBytes = 34;  // bytes of a token and hidden dimension

struct PhaseFigures {
  Phase phase = Phase::kLlm;
  std::vector<double> seconds;  // [ranks] forward and backward, without waiting
  double max_over_mean = 1;
  double pad_ratio = 0;  // padding / tokens computed
  double index_max_over_mean =
      1;  // the sum over microbatches of the busiest rank, over that of the mean rank
};

// With context parallelism: ranks that share sequences, from second `start` to `end` of the step.
struct GroupFigures {
  std::vector<uint32_t> ranks;  // llm ranks
  uint32_t microbatch = 0;
  uint64_t tokens = 0;
  double start = 0;
  double end = 0;
};

struct StepFigures {
  double iteration_seconds = 0;
  double exchange_seconds = 0;   // part of iteration_seconds
  double bubble_share = 0;       // share of all GPUs' time spent waiting for a pipeline, a barrier or rows
  double pad_ratio = 0;          // padding / tokens computed, all phases
  double mfu = 0;                // FLOPs of the model, without padding and recomputation, over the peak's
  double inter_node_bytes = 0;   // encoder outputs sent to the llm, without their gradients
  double peak_memory_bytes = 0;  // on the fullest GPU
  std::vector<PhaseFigures> phases;   // in the order of the plan
  reorder::PipelineTimeline slowest;  // with pipeline stages: the slowest llm rank
  std::vector<GroupFigures> groups;   // with context parallelism: by microbatch
  double pipeline_bubble_share = 0;   // with pipeline stages: idle share of the stages, mean over llm ranks
  double gpus = 0;                    // of all phases; not with context parallelism
};

// InvalidArgument: the model lacks a phase of the plan, a machine without speed, or as CheckPipeline.
absl::StatusOr<StepFigures> ModelStep(const Job& job, const Plan& plan, const TrainingModel& model,
                                      const Machine& machine);

// Replaces the costs of the job by those of the model, so that planners balance what the model counts.
// InvalidArgument: the model lacks a phase of the job.
absl::StatusOr<Job> WithCostsOf(const TrainingModel& model, Job job);

// InvalidArgument: a speed, bandwidth, memory size or number of GPUs is not positive.
absl::Status CheckMachine(const Machine& machine);
// InvalidArgument: the model lacks a phase of the job.
absl::Status CheckPhases(const Job& job, const TrainingModel& model);

}  // namespace evenkeel::advise
