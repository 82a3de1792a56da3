// The exact times at which every microbatch runs on every stage of a pipeline: the schedules of trainers, as
// a graph of operations whose longest path is the iteration.
//
// It chooses no order (microbatch_order.h), and is no model of a microbatch's cost (step_model.h).
//
// Example:
//     PipelineProblem problem{.stages = 2, .forward = {1, 1, 4, 4}, .backward = {2, 2, 8, 8}};
//     EVENKEEL_RETURN_IF_ERROR(CheckPipeline(problem));
//     PipelineTimeline timeline = SimulatePipeline(problem, std::vector<uint32_t>{1, 0});
//     timeline.iteration_time;
//
// The model has p stages. The layers are cut into p * v chunks; chunk c runs on stage c mod p. A microbatch
// runs forward through chunks 0, 1, ... and then backward through them. Between chunks on different stages
// its data travel for the time `transfer`, which occupies no stage. A stage runs one operation at a time, in
// the order of its schedule, and waits for the input of each:
//
//   1f1b               stage s (from 0): p - s - 1 forwards, then one forward and one backward in turn, then
//                      the backwards that are left
//   interleaved_1f1b   the same over chunks, as Megatron-LM does (Narayanan et al., "Efficient large-scale
//                      language model training on GPU clusters using Megatron-LM", SC 2021): microbatches in
//                      groups of p, a group through one chunk after the other; 2 (p - s - 1) + (v - 1) p
//                      forwards to warm up. The number of microbatches is a multiple of p.
//   gpipe              all forwards, then all backwards (Huang et al., "GPipe", NeurIPS 2019), which come in
//                      the same order
//
// Times have any common unit. Sums are of doubles in an order that depends on the problem alone, so the
// result is the same on every build.
//
// Thread safety: plain values and pure functions; a PipelineClock is for one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace evenkeel::reorder {

enum class PipelineSchedule : uint8_t { k1F1B, kInterleaved1F1B, kGPipe };

// "1f1b", "interleaved_1f1b", "gpipe".
std::string_view PipelineScheduleName(PipelineSchedule schedule);
std::optional<PipelineSchedule> PipelineScheduleFromName(std::string_view name);

struct PipelineProblem {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  uint32_t stages = 1;
  uint32_t virtual_stages = 1;   // chunks per stage; more than 1 with interleaved_1f1b only
  double transfer = 0;           // from chunk to chunk, and back
  std::vector<double> forward;   // [microbatches, stages * virtual_stages]
  std::vector<double> backward;  // the same

  uint32_t num_chunks() const { return stages * virtual_stages; }
  uint32_t num_microbatches() const {
    return num_chunks() == 0 ? 0 : static_cast<uint32_t>(forward.size() / num_chunks());
  }
};

// InvalidArgument: no stage; arrays that are not [microbatches, chunks]; a time that is negative or not a
// number; virtual stages without interleaved_1f1b; with it, a number of microbatches that is not a multiple
// of the stages; more than 2^24 operations.
absl::Status CheckPipeline(const PipelineProblem& problem);

struct PipelineOp {
  uint32_t stage = 0;
  uint32_t chunk = 0;
  uint32_t microbatch = 0;
  bool backward = false;
  double start = 0;
  double end = 0;
};

struct PipelineTimeline {
  double iteration_time = 0;
  double bubble_share = 0;      // idle share of all stages' time; 0 if the iteration takes no time
  std::vector<double> busy;     // [stages]
  std::vector<double> idle;     // [stages] iteration_time - busy
  std::vector<PipelineOp> ops;  // by stage, then time
};

// `order[k]` is the microbatch at position k: a permutation. The problem has passed CheckPipeline.
PipelineTimeline SimulatePipeline(const PipelineProblem& problem, std::span<const uint32_t> order);

// A bound for every order: for each stage its work, the time before its first operation and after its last,
// and (without interleaving) the time in which it can only wait for the first microbatch to return, and for
// the last. At least the time of the longest microbatch alone.
double PipelineBound(const PipelineProblem& problem);

// Computes the iteration time of SimulatePipeline for many orders of one problem. After a change at position
// k only the operations from there on are computed.
class PipelineClock {
 public:
  // The problem has passed CheckPipeline; it need not outlive the clock. `alike`: a clock whose problem
  // differs only in its times; its schedule is reused.
  explicit PipelineClock(const PipelineProblem& problem, const PipelineClock* alike = nullptr);

  // The iteration time of an order that agrees with the kept one before `first_changed`.
  double Try(std::span<const uint32_t> order, uint32_t first_changed);
  // Keeps the order that was tried last, for later comparisons. The first Try must have begun at 0.
  void Keep();

  // Adds a microbatch, [chunks] each, that an order may contain in place of any other, also several times.
  uint32_t AddMicrobatch(std::span<const double> forward, std::span<const double> backward);

  // For stage 0 in the order tried last, counted in its schedule's order: the end of a forward, the begin of
  // a backward, and the wait from a forward's end to the next backward's begin. DistTrain calls these waits
  // intervals.
  double EndOfForward(uint32_t k) const { return tried_[shape_->forward_on_first[k]]; }
  double StartOfBackward(uint32_t k) const { return StartOf(shape_->backward_on_first[k]); }
  double WaitAfterForward(uint32_t k) const;

  // The operations of the order tried last, by stage, then time.
  std::vector<PipelineOp> Ops(std::span<const uint32_t> order) const;

 private:
  // Operation 0 is the begin of the iteration.
  struct Op {
    uint32_t position = 0;
    uint32_t column = 0;    // of times_
    uint32_t on_stage = 0;  // the operation before it on its stage
    uint32_t needs = 0;     // the operation whose result it needs
    double lag = 0;         // until that result has arrived
  };

  // The part of a schedule that does not depend on times.
  struct Shape {
    std::vector<Op> ops;             // in an order in which every operation comes after those that it needs
    std::vector<uint32_t> first_op;  // [microbatches] of a position
    std::vector<uint32_t> last_op;   // [stages]
    std::vector<uint32_t> forward_on_first, backward_on_first;
  };

  static std::shared_ptr<const Shape> MakeShape(const PipelineProblem& problem);
  double StartOf(uint32_t op) const;

  const uint32_t columns_;
  const std::shared_ptr<const Shape> shape_;
  std::vector<double> times_;         // [microbatches, 2 * chunks]: forward, then backward
  std::vector<double> kept_, tried_;  // [ops] end times
  uint32_t same_until_ = 0;           // tried_ equals kept_ before this operation
};

}  // namespace evenkeel::reorder
