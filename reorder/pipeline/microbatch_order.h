// The order in which a pipeline runs its microbatches, so that its stages wait as little as possible.
//
// It chooses neither the contents of microbatches (microbatches.h) nor a schedule: every order is measured by
// the simulation of pipeline_schedule.h. Each algorithm is one file.
// Example:
//     OrderProblem problem{.pipeline = {.stages = 2, .forward = {1, 1, 4, 4}, .backward = {2, 2, 8, 8}}};
//     EVENKEEL_ASSIGN_OR_RETURN(OrderOutcome outcome, SolveOrder(problem));
//     outcome.order;                    // the microbatch that goes first, second, ...
//     outcome.timeline.iteration_time;  // never below outcome.bound
//
// An order changes when gradients are added up, but not their sum.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/pipeline/pipeline_schedule.h"

namespace evenkeel::reorder {

// The default number of orders that a search tries: all of them, up to eight microbatches.
inline constexpr uint32_t kOrderIterations = 50000;

struct OrderProblem {
  PipelineProblem pipeline;
  std::string algorithm = "local_search";
  uint64_t seed = 0;                       // for random, and for the search's own choices
  uint32_t iterations = kOrderIterations;  // orders that local_search may try: the bound on its effort
  // A clock of a pipeline that differs only in its times: its schedule is reused. Null: made here.
  const PipelineClock* alike = nullptr;
};

struct OrderOutcome {
  std::vector<uint32_t> order;  // a permutation of the microbatches
  PipelineTimeline timeline;
  double given_time = 0;  // the iteration time of the given order
  double bound = 0;       // no order has a shorter iteration; see PipelineBound
};

// InvalidArgument: errors of CheckPipeline, or an unknown algorithm.
absl::StatusOr<OrderOutcome> SolveOrder(const OrderProblem& problem);

// Only the order. The same errors.
absl::StatusOr<std::vector<uint32_t>> OrderMicrobatches(const OrderProblem& problem);

// "given, random, ...", for messages.
std::string OrderAlgorithmNames();

// The algorithms with a file of their own; the pipeline has passed CheckPipeline.
std::vector<uint32_t> DistTrainOrder(const OrderProblem& problem);
std::vector<uint32_t> LocalSearchOrder(const OrderProblem& problem);

// 0, 1, ..., n - 1 at random.
std::vector<uint32_t> AtRandom(uint32_t n, uint64_t seed);

}  // namespace evenkeel::reorder
