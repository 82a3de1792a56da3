// Any packing or context-parallel problem that can be drawn gives a solution that passes its check, or the
// one documented error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "tests/reorder/random_packing.h"

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
  size_t at = 0;
  const evenkeel::Below below = [&](uint64_t bound) -> uint64_t {
    uint64_t value = 0;
    for (uint64_t reach = 1; reach < bound && at < size; reach <<= 8) value = value << 8 | data[at++];
    return bound == 0 ? 0 : value % bound;
  };
  if (below(2) == 0) {
    const evenkeel::PackInput input = evenkeel::DrawPackInput(below);
    const auto packing = Pack(input);
    if (IsSolved(packing)) Require(PackCheck(input, *packing));
  } else {
    const evenkeel::ContextParallelInput input = evenkeel::DrawContextParallelInput(below);
    const auto plan = PlanContextParallel(input);
    if (IsSolved(plan)) Require(ContextParallelCheck(input, *plan));
  }
  return 0;
}
