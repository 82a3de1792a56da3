// The registry of order algorithms, the two without a search, and the check of their problems.
#include "reorder/pipeline/microbatch_order.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/by_name.h"

namespace evenkeel::reorder {
namespace {

std::vector<uint32_t> GivenOrder(const OrderProblem& problem) {
  return InOrder(problem.pipeline.num_microbatches());
}

// The usual order without a planner: that of a shuffled dataset.
std::vector<uint32_t> RandomOrder(const OrderProblem& problem) {
  return AtRandom(problem.pipeline.num_microbatches(), problem.seed);
}

struct OrderAlgorithm {
  std::string_view name;
  std::vector<uint32_t> (*order)(const OrderProblem& problem);  // a permutation
};

constexpr OrderAlgorithm kAlgorithms[] = {{"given", GivenOrder},
                                          {"random", RandomOrder},
                                          {"disttrain", DistTrainOrder},
                                          {"local_search", LocalSearchOrder}};

}  // namespace

std::vector<uint32_t> AtRandom(uint32_t n, uint64_t seed) {
  KeyedNumbers numbers(seed);
  return ShuffledOrder(n, numbers);
}

std::string OrderAlgorithmNames() { return NamesOf(kAlgorithms); }

absl::StatusOr<std::vector<uint32_t>> OrderMicrobatches(const OrderProblem& problem) {
  EVENKEEL_RETURN_IF_ERROR(CheckPipeline(problem.pipeline));
  const OrderAlgorithm* algorithm = FindByName(kAlgorithms, problem.algorithm);
  if (algorithm == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("unknown algorithm '", problem.algorithm,
                                                   "' for the order; expected one of ",
                                                   OrderAlgorithmNames()));
  }
  return algorithm->order(problem);
}

absl::StatusOr<OrderOutcome> SolveOrder(const OrderProblem& problem) {
  OrderOutcome outcome;
  EVENKEEL_ASSIGN_OR_RETURN(outcome.order, OrderMicrobatches(problem));
  outcome.timeline = SimulatePipeline(problem.pipeline, outcome.order);
  outcome.given_time = PipelineClock(problem.pipeline).Try(InOrder(problem.pipeline.num_microbatches()), 0);
  outcome.bound = PipelineBound(problem.pipeline);
  return outcome;
}

}  // namespace evenkeel::reorder
