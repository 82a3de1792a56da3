// The registry of order algorithms, the two without a search, and the check of their problems.
#include "reorder/pipeline/microbatch_order.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/keyed_shuffle.h"

namespace evenkeel::reorder {
namespace {

class Given : public OrderAlgorithm {
 public:
  std::string_view name() const override { return "given"; }
  std::vector<uint32_t> Order(const OrderProblem& problem) const override {
    return InOrder(problem.pipeline.num_microbatches());
  }
};

// The usual order without a planner: that of a shuffled dataset.
class Random : public OrderAlgorithm {
 public:
  std::string_view name() const override { return "random"; }
  std::vector<uint32_t> Order(const OrderProblem& problem) const override {
    return AtRandom(problem.pipeline.num_microbatches(), problem.seed);
  }
};

const OrderAlgorithm* const* Algorithms() {
  static const OrderAlgorithm* const kAlgorithms[] = {&GivenOrder(), &RandomOrder(), &DistTrainOrder(),
                                                      &LocalSearchOrder(), nullptr};
  return kAlgorithms;
}

}  // namespace

const OrderAlgorithm& GivenOrder() {
  static const Given algorithm;
  return algorithm;
}

const OrderAlgorithm& RandomOrder() {
  static const Random algorithm;
  return algorithm;
}

const OrderAlgorithm* FindOrderAlgorithm(std::string_view name) {
  for (const OrderAlgorithm* const* at = Algorithms(); *at != nullptr; ++at) {
    if ((*at)->name() == name) return *at;
  }
  return nullptr;
}

PipelineClock ClockOf(const OrderProblem& problem) {
  return problem.alike == nullptr ? PipelineClock(problem.pipeline)
                                  : PipelineClock(problem.pipeline, *problem.alike);
}

std::vector<uint32_t> InOrder(uint32_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

std::vector<uint32_t> AtRandom(uint32_t n, uint64_t seed) {
  KeyedNumbers numbers(seed);
  return ShuffledOrder(n, numbers);
}

std::string OrderAlgorithmNames() {
  std::string names;
  for (const OrderAlgorithm* const* at = Algorithms(); *at != nullptr; ++at) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string((*at)->name()));
  }
  return names;
}

absl::StatusOr<std::vector<uint32_t>> OrderMicrobatches(const OrderProblem& problem) {
  EVENKEEL_RETURN_IF_ERROR(CheckPipeline(problem.pipeline));
  const OrderAlgorithm* algorithm = FindOrderAlgorithm(problem.algorithm);
  if (algorithm == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("unknown algorithm '", problem.algorithm,
                                                   "' for the order; expected one of ",
                                                   OrderAlgorithmNames()));
  }
  return algorithm->Order(problem);
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
