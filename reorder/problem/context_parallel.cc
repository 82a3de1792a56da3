// The kind `context_parallel` of problems: reorder/context_parallel/context_parallel.h as messages.
#include "reorder/context_parallel/context_parallel.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/problem/kinds.h"

namespace evenkeel::reorder {
namespace {

absl::StatusOr<ContextParallelInput> ToContextParallelInput(const pb::ContextParallelProblem& problem) {
  ContextParallelInput input{.ranks = problem.ranks(),
                             .ranks_per_node = problem.ranks_per_node(),
                             .memory_per_rank = problem.memory_per_rank(),
                             .model_states = problem.model_states(),
                             .memory_per_token = problem.memory_per_token(),
                             .powers_of_two = problem.degrees() == "powers_of_two"};
  if (problem.has_cost()) {
    input.cost = {.attention = problem.cost().attention(),
                  .linear = problem.cost().linear(),
                  .constant = problem.cost().constant(),
                  .ring = problem.cost().ring(),
                  .ring_between_nodes = problem.cost().ring_between_nodes(),
                  .ring_constant = problem.cost().ring_constant()};
  }
  if (!input.powers_of_two && !problem.degrees().empty() && problem.degrees() != "any") {
    return BadField("context_parallel.degrees",
                    absl::StrCat("'", problem.degrees(), "' is unknown; expected any or powers_of_two"));
  }
  if (!problem.algorithm().empty()) input.algorithm = problem.algorithm();
  if (problem.mask_factor_size() != 0 && problem.mask_factor_size() != problem.tokens_size()) {
    return BadField("context_parallel.mask_factor", "give one per sequence, or none");
  }
  for (int s = 0; s < problem.tokens_size(); ++s) {
    input.sequences.push_back({.tokens = problem.tokens(s),
                               .mask_factor = problem.mask_factor_size() > 0 ? problem.mask_factor(s) : 0});
  }
  return input;
}

}  // namespace

absl::Status SolveContextParallel(const pb::ContextParallelProblem& problem, pb::Solution& solution) {
  EVENKEEL_ASSIGN_OR_RETURN(const ContextParallelInput input, ToContextParallelInput(problem));
  const StopWatch watch;
  EVENKEEL_ASSIGN_OR_RETURN(const ContextParallelPlan plan, PlanContextParallel(input));
  solution.set_wall_ms(watch.Milliseconds());
  EVENKEEL_RETURN_IF_ERROR(ContextParallelCheck(input, plan));
  pb::ContextParallelSolution& message = *solution.mutable_context_parallel();
  message.set_time(plan.time);
  message.set_bound(plan.bound);
  for (const ContextParallelMicrobatch& microbatch : plan.microbatches) {
    pb::ContextParallelMicrobatch& out = *message.add_microbatches();
    out.set_time(microbatch.time);
    for (const ContextParallelGroup& group : microbatch.groups) {
      pb::ContextParallelGroup& member = *out.add_groups();
      member.set_degree(group.degree);
      member.mutable_sequences()->Assign(group.sequences.begin(), group.sequences.end());
      member.set_time(group.time);
    }
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
