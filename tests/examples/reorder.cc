// The examples of reorder/.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/status.h"
#include "reorder/by_name.h"
#include "reorder/by_rank.h"
#include "reorder/compose.h"
#include "reorder/context_parallel/context_parallel.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/pipeline/pipeline_schedule.h"
#include "reorder/problem/balance_problem.h"
#include "reorder/problem/solve.h"

namespace evenkeel::reorder {

struct Named {
  std::string_view name;
};
constexpr Named kPolicies[] = {{"random"}, {"none"}};

void Use(uint32_t) {}

void Find() {
#include "examples/reorder/by_name.h.inc"
}

void Units(const std::vector<uint32_t>& rank, size_t num_ranks){
#include "examples/reorder/by_rank.h.inc"
}

absl::Status Route(const Rearrangement& to_encoder, const Rearrangement& to_llm) {
#include "examples/reorder/compose.h.inc"
  return absl::OkStatus();
}

absl::Status PlanGroups() {
#include "examples/reorder/context_parallel/context_parallel.h.inc"
  return absl::OkStatus();
}

void Shuffled(uint64_t seed, uint32_t bins){
#include "examples/reorder/keyed_shuffle.h.inc"
}

absl::Status Order() {
#include "examples/reorder/pipeline/microbatch_order.h.inc"
  return absl::OkStatus();
}

absl::Status Schedule() {
#include "examples/reorder/pipeline/pipeline_schedule.h.inc"
  return absl::OkStatus();
}

absl::Status BalanceStep(const StepSamples& step) {
#include "examples/reorder/problem/balance_problem.h.inc"
  return absl::OkStatus();
}

void SolveText() {
#include "examples/reorder/problem/solve.h.inc"
}

}  // namespace evenkeel::reorder
