// Any problem that can be drawn gives a plan that keeps every invariant, or the one documented error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "reorder/planner.h"
#include "tests/reorder/random_problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  const evenkeel::Below below = [&](uint64_t bound) -> uint64_t {
    uint64_t value = 0;
    for (uint64_t reach = 1; reach < bound && at < size; reach <<= 8) value = value << 8 | data[at++];
    return bound == 0 ? 0 : value % bound;
  };
  evenkeel::RandomProblem problem = evenkeel::DrawProblem(below);
  evenkeel::DrawAlgorithms(below, problem.job);
  std::vector<uint32_t> llm_rank;
  const evenkeel::PlanOptions options = evenkeel::DrawOptions(below, problem, llm_rank);
  const auto plan = MakePlan(problem.job, problem.step, problem.dummies, options);
  if (!plan.ok()) {
    if (plan.status().code() == absl::StatusCode::kInvalidArgument) return 0;
    std::cerr << plan.status() << "\n";
    std::abort();
  }
  if (const absl::Status checked = PlanCheck(problem.job, problem.step, *plan); !checked.ok()) {
    std::cerr << checked << "\n";
    std::abort();
  }
  return 0;
}
