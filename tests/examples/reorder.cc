// The examples of reorder/.
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/status.h"
#include "reorder/balance/balance.h"
#include "reorder/balance/node_wise.h"
#include "reorder/balance/rank_tree.h"
#include "reorder/by_name.h"
#include "reorder/by_rank.h"
#include "reorder/compose.h"
#include "reorder/context_parallel/context_parallel.h"
#include "reorder/context_parallel/waves.h"
#include "reorder/item_phases.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/named_phases.h"
#include "reorder/pack/pack.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/pipeline/pipeline_model.h"
#include "reorder/pipeline/pipeline_schedule.h"
#include "reorder/plan_phases.h"
#include "reorder/planner.h"
#include "reorder/problem/balance_problem.h"
#include "reorder/problem/solve.h"
#include "reorder/step_groups.h"

namespace evenkeel::reorder {

struct Named {
  std::string_view name;
};
constexpr Named kPolicies[] = {{"random"}, {"none"}};

void Use(uint32_t) {}

void Balance(const BalanceProblem& problem) {
#include "examples/reorder/balance/balance.h.inc"
}

void ChooseNodes(const NodeWiseProblem& problem) {
#include "examples/reorder/balance/node_wise.h.inc"
}

void DescendTree(const PhaseRanks& ranks, const ShareTable& shares) {
#include "examples/reorder/balance/rank_tree.h.inc"
}

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

absl::Status PlanAlignedGroups() {
#include "examples/reorder/context_parallel/waves.h.inc"
  return absl::OkStatus();
}

absl::Status GroupTheStep(const Job& job, const Layout& layout, LlmUnits& llm,
                          const std::vector<EncoderUnits>& encoders) {
#include "examples/reorder/step_groups.h.inc"
  return absl::OkStatus();
}

void PhaseOfAnItem() {
#include "examples/reorder/item_phases.h.inc"
}

void PhasesOfNames() {
#include "examples/reorder/named_phases.h.inc"
}

void Shuffled(uint64_t seed, uint32_t bins){
#include "examples/reorder/keyed_shuffle.h.inc"
}

absl::Status PackSamples(const Phase& vision) {
#include "examples/reorder/pack/pack.h.inc"
  return absl::OkStatus();
}

absl::Status Order() {
#include "examples/reorder/pipeline/microbatch_order.h.inc"
  return absl::OkStatus();
}

absl::Status Schedule() {
#include "examples/reorder/pipeline/pipeline_schedule.h.inc"
  return absl::OkStatus();
}

void TimeAPipeline(const Job& job, const PhaseSpec& llm, std::span<const PhaseSpec* const> encoders,
                   const std::vector<std::vector<double>>& costs){
#include "examples/reorder/pipeline/pipeline_model.h.inc"
}

absl::Status PlanAnyPhases(const Job& job, const PhaseSpec& llm_spec, const PhaseSpec& encoder_spec,
                           const SampleItem& image, const PlanOptions& options) {
#include "examples/reorder/plan_phases.h.inc"
  return absl::OkStatus();
}

absl::Status PlanAStep(const Job& job, const StepSamples& step_samples, const DummyItems& dummy_items) {
#include "examples/reorder/planner.h.inc"
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
