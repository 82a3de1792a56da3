// Balances one step given only by its lengths: the planner as a library function, for the command line, for
// studies, and for trainers that use nothing else of this project.
//
// It is not a second planner: a problem becomes a job, MakePlan plans it, PlanCheck checks it, and the
// figures are read off the plan.
// Example:
//     BalanceInput input{.ranks_per_node = 8};
//     input.phases.push_back({.spec = {.phase = Phase::kLlm, .ranks = {0, 1, 2, 3}}});
//     input.step = step;
//     EVENKEEL_ASSIGN_OR_RETURN(BalanceOutcome outcome, SolveBalance(input));
//     outcome.phases[0].max_over_mean;
//
// Thread safety: a pure function of its input.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "reorder/planner.h"

namespace evenkeel::reorder {

struct BalancePhaseInput {
  PhaseSpec spec;               // `ranks` are global ranks; `capacity` is also the llm's, of a whole step
  std::vector<uint32_t> nodes;  // [ranks] the node of each; in all phases or in none
};

struct BalanceInput {
  std::vector<BalancePhaseInput> phases;  // exactly one is the llm
  uint32_t ranks_per_node = 0;            // if no phase has `nodes`; 0: one node
  MicrobatchSpec microbatch;
  StepSamples step;                // any references, one for each of the lengths
  std::vector<uint32_t> llm_rank;  // [samples] a given placement; empty: free
  bool phases_add_up = false;      // as in a job
};

// A unit that alone exceeds a rank's fair share.
struct UnitTooLong {
  uint32_t sample = 0;
  uint32_t item = 0;  // index of the item in its phase over all samples; llm: 0
  uint32_t length = 0;
  double over_mean = 0;  // cost over the mean load of a rank
};

// The figures of one phase. Rows are output rows; all except the first four are 0 for the llm.
struct BalancedPhase {
  Phase phase = Phase::kLlm;
  std::vector<double> load;  // [ranks]
  double max_over_mean = 1;
  double reachable = 1;  // no solution has a smaller max_over_mean
  std::vector<UnitTooLong> too_long;
  uint64_t rows = 0;
  uint64_t rows_to_other_rank = 0;
  uint64_t inter_node_rows = 0;        // encoded on another node than their sample's llm part
  uint64_t inter_node_rows_bound = 0;  // rows that must leave overloaded nodes, given the llm placement
  uint64_t max_node_egress = 0;
  uint64_t max_node_ingress = 0;
  uint64_t max_rank_volume = 0;        // of one llm rank, encoded on other nodes; node_wise minimises it
  uint64_t max_rank_volume_bound = 0;  // a bound for all permutations of the batches over the ranks
};

struct BalanceOutcome {
  Job job;                            // as planned; global ranks are renumbered if `nodes` are given
  Plan plan;                          // ranks are those of the phases
  std::vector<BalancedPhase> phases;  // in the order of the input
  MethodsTaken methods;               // none of the llm where its placement is given
  uint64_t inter_node_rows = 0;
  double max_over_mean_of_step = 0;  // of the ranks' loads added over the phases, where these add up
};

// Only the job and the plan, for which a trainer waits. Errors of MakePlan; InvalidArgument: nodes in only some phases, or
// two nodes for one global rank.
absl::StatusOr<BalanceOutcome> PlanBalance(const BalanceInput& input);

// Checks the plan and fills in the figures. Internal: the plan breaks an invariant.
absl::Status MeasureBalance(const BalanceInput& input, BalanceOutcome& outcome);

// Both in one call.
absl::StatusOr<BalanceOutcome> SolveBalance(const BalanceInput& input);

// A segment of a route with both sides: rows [from_row, from_row + rows) of encoder rank `from`'s output
// become rows [to_row, to_row + rows) of llm rank `to`.
struct RouteRun {
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t from_row = 0;
  uint64_t to_row = 0;
  uint64_t rows = 0;
};

// Sorted by receiver, then sender.
std::vector<RouteRun> RunsOf(const Plan& plan, const Route& route);

}  // namespace evenkeel::reorder
