// Any problem that can be drawn gives a plan that keeps every invariant, or the one documented error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "reorder/planner.h"
#include "tests/reorder/random_problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const evenkeel::reorder::Below below = evenkeel::reorder::BelowFrom({data, size});
  const bool is_grouped = below(4) == 3;
  evenkeel::reorder::RandomProblem problem =
      is_grouped ? evenkeel::reorder::DrawGrouped(below) : evenkeel::reorder::DrawProblem(below);
  const auto plan = is_grouped ? evenkeel::reorder::MakePlan(problem.job, problem.step, problem.dummies)
                               : DrawPlan(below, problem);
  if (!plan.ok()) {
    if (plan.status().code() == absl::StatusCode::kInvalidArgument) return 0;
    std::cerr << plan.status() << "\n";
    std::abort();
  }
  if (const absl::Status checked = evenkeel::reorder::PlanCheck(problem.job, problem.step, *plan);
      !checked.ok()) {
    std::cerr << checked << "\n";
    std::abort();
  }
  return 0;
}
