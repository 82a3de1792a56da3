// What step_model_degrees.h counts of one rank: passes, bytes and the pipeline of its stages.
//
// Internal to advise. Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "advise/training_model.h"
#include "core/job.h"
#include "reorder/pipeline/pipeline_model.h"
#include "reorder/pipeline/pipeline_schedule.h"

namespace evenkeel::advise {

class DegreeCosts {
 public:
  // The model has the job's phases, and the machine is CheckMachine's. All outlive it.
  DegreeCosts(const Job& job, const TrainingModel& model, const Machine& machine);
  DegreeCosts(const DegreeCosts&) = delete;
  DegreeCosts& operator=(const DegreeCosts&) = delete;

  // InvalidArgument: a chunk of the job's pipeline has an encoder.
  absl::Status Check() const;

  uint32_t stages() const { return pipeline_.num_stages(); }
  // FLOPs per second of a rank, all of its stages.
  double Speed() const;
  // Passes over a phase in one step, in forwards: its forward, its backward unless it is frozen, and recomputation.
  double PassesOf(const Phase& phase) const { return PassesOf(phase, pipeline_); }
  // The share of them that is not recomputation.
  double UsefulShare(const Phase& phase) const;

  // Activation bytes of a token on one GPU: with recomputation the input of every layer and one whole layer.
  double BytesPerToken() const;
  // Bytes of a token that one rank's GPUs of one tensor parallel index pass around the ring in a forward: keys and values of
  // all layers.
  double RingBytesPerToken() const;
  // The same all-to-all: queries, keys, values and outputs. Outputs are as wide as queries.
  double UlyssesBytesPerToken() const;
  // All-to-all exchanges in one step, in forwards. Gradients travel once, unlike in a ring.
  double UlyssesPasses() const { return machine_.recompute ? 3 : 2; }
  // Bytes of weights, gradients and optimizer states of all phases on one GPU. `replicated` bytes of each trained parameter
  // are on every rank, the rest is sharded.
  double ModelStates(double replicated) const;

  // The pipeline of microbatches that take these seconds on a rank, forward and backward, if all of its stages work all the
  // time. An interleaved schedule is filled up with empty microbatches. InvalidArgument: as CheckPipeline.
  absl::StatusOr<reorder::PipelineTimeline> RunPipeline(std::span<const double> seconds) const;

 private:
  // The job's phases and pipeline, with all encoders outside the pipeline.
  static Job LlmAlone(const Job& job);
  static std::vector<const PhaseSpec*> EncodersOf(const Job& job);
  double PassesOf(const Phase& phase, const reorder::PipelineModel& pipeline) const;
  const PhaseModel& Llm() const { return *model_.phase(Phase::kLlm); }

  const Job job_;
  const TrainingModel& model_;
  const Machine& machine_;
  const std::vector<const PhaseSpec*> encoders_;
  const reorder::PipelineModel pipeline_, without_recompute_;
};

}  // namespace evenkeel::advise
