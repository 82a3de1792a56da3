// Any packing or context-parallel problem that can be drawn gives a solution that passes its check, or the
// one documented error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "tests/reorder/pack/random_packing.h"

namespace {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::abort();
}

template <typename Solution>
bool IsSolved(const Solution& solution) {
  if (solution.status().code() != absl::StatusCode::kInvalidArgument) Require(solution.status());
  return solution.ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const evenkeel::reorder::Below below = evenkeel::reorder::BelowFrom({data, size});
  if (below(2) == 0) {
    const evenkeel::reorder::PackInput input = evenkeel::reorder::DrawPackInput(below);
    const auto packing = Pack(input);
    if (IsSolved(packing)) Require(PackCheck(input, *packing));
  } else {
    const evenkeel::reorder::ContextParallelInput input = evenkeel::reorder::DrawContextParallelInput(below);
    const auto plan = PlanContextParallel(input);
    if (IsSolved(plan)) Require(ContextParallelCheck(input, *plan));
  }
  return 0;
}
