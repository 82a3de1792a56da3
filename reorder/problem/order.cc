// The kind `order` of problems: reorder/pipeline/microbatch_order.h as messages.
#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/problem/kinds.h"

namespace evenkeel::reorder {
namespace {

absl::StatusOr<OrderProblem> ToOrderProblem(const pb::OrderProblem& message) {
  OrderProblem problem{.seed = message.seed()};
  if (!message.algorithm().empty()) problem.algorithm = message.algorithm();
  if (message.iterations() > 0) problem.iterations = message.iterations();
  PipelineProblem& pipeline = problem.pipeline;
  pipeline.stages = message.stages();
  pipeline.virtual_stages = message.virtual_stages() == 0 ? 1 : message.virtual_stages();
  pipeline.transfer = message.transfer();
  if (!message.schedule().empty()) {
    const std::optional<PipelineSchedule> schedule = PipelineScheduleFromName(message.schedule());
    if (!schedule) {
      return BadField(
          "order.schedule",
          absl::StrCat("'", message.schedule(), "' is unknown; expected 1f1b, interleaved_1f1b or gpipe"));
    }
    pipeline.schedule = *schedule;
  }
  const uint64_t chunks = uint64_t{pipeline.stages} * pipeline.virtual_stages;
  for (int m = 0; m < message.microbatches_size(); ++m) {
    const pb::OrderMicrobatch& microbatch = message.microbatches(m);
    if (microbatch.forward_size() != chunks || microbatch.backward_size() != chunks) {
      return BadField(absl::StrCat("order.microbatches[", m, "]"),
                      absl::StrCat(microbatch.forward_size(), " forward and ", microbatch.backward_size(),
                                   " backward times for ", chunks, " chunks"));
    }
    pipeline.forward.insert(pipeline.forward.end(), microbatch.forward().begin(), microbatch.forward().end());
    pipeline.backward.insert(pipeline.backward.end(), microbatch.backward().begin(),
                             microbatch.backward().end());
  }
  return problem;
}

pb::OrderSolution ToMessage(const OrderOutcome& outcome, bool with_timeline) {
  pb::OrderSolution message;
  message.mutable_order()->Add(outcome.order.begin(), outcome.order.end());
  message.set_iteration_time(outcome.timeline.iteration_time);
  message.set_bound(outcome.bound);
  message.set_given_time(outcome.given_time);
  message.set_bubble_share(outcome.timeline.bubble_share);
  message.mutable_busy()->Add(outcome.timeline.busy.begin(), outcome.timeline.busy.end());
  message.mutable_idle()->Add(outcome.timeline.idle.begin(), outcome.timeline.idle.end());
  if (!with_timeline) return message;
  for (const PipelineOp& op : outcome.timeline.ops) {
    pb::OrderOperation& operation = *message.add_timeline();
    operation.set_stage(op.stage);
    operation.set_chunk(op.chunk);
    operation.set_microbatch(op.microbatch);
    operation.set_backward(op.backward);
    operation.set_start(op.start);
    operation.set_end(op.end);
  }
  return message;
}

}  // namespace

absl::Status SolveOrder(const pb::OrderProblem& message, pb::Solution& solution) {
  EVENKEEL_ASSIGN_OR_RETURN(const OrderProblem problem, ToOrderProblem(message));
  const StopWatch watch;
  auto outcome = evenkeel::reorder::SolveOrder(problem);
  solution.set_wall_ms(watch.Milliseconds());
  if (!outcome.ok()) return BadField("order", outcome.status().message());
  *solution.mutable_order() = ToMessage(*outcome, message.timeline());
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
