#include "advise/policies.h"

#include <vector>

#include "reorder/by_name.h"
#include "reorder/pipeline/microbatch_order.h"

namespace evenkeel::advise {
namespace {

using enum Balancing;

constexpr Policy kPolicies[] = {
    {.name = "random",
     .says = "samples and microbatches in random order",
     .in_order = true,
     .shuffled = true,
     .order = "random"},
    {.name = "none", .says = "samples dealt out as they come", .in_order = true},
    {.name = "llm_only", .says = "the llm balanced, encoders beside their samples", .llm = kTailored},
    {.name = "disttrain",
     .says = "DistTrain: reordering within and across microbatches",
     .llm = kIntraMicrobatch,
     .in_order = true,
     .order = "disttrain"},
    {.name = "all_packed",
     .says = "every phase balanced as if packed",
     .llm = kTailored,
     .encoders = kPacked},
    {.name = "all_padded",
     .says = "every phase balanced as if padded",
     .llm = kTailored,
     .encoders = kPadded},
    {.name = "post_balancing",
     .says = "OrchMLLM: every phase balanced by itself, as its batching asks",
     .llm = kTailored,
     .encoders = kTailored},
    {.name = "post_balancing_node_wise",
     .says = "the same, its batches then permuted by node",
     .llm = kTailored,
     .encoders = kTailored,
     .node_wise = true},
    {.name = "balance_without_moving",
     .says = "ours: all phases at once, items stay; microbatches by local search",
     .llm = kWithoutMoving,
     .encoders = kWithoutMoving,
     .order = "local_search"},
};

std::string AlgorithmOf(Balancing balancing, Batching batching) {
  switch (balancing) {
    case kNone:
      return "none";
    case kTailored:
      return batching == Batching::kPadded ? "greedy_padded" : "greedy_packed";
    case kPacked:
      return "greedy_packed";
    case kPadded:
      return "greedy_padded";
    case kIntraMicrobatch:
      return "intra_microbatch";
    case kWithoutMoving:
      return "balance_without_moving";
  }
  return "none";
}

StepSamples Shuffled(const StepSamples& samples, uint64_t seed) {
  StepSamples shuffled{.step = samples.step};
  for (uint32_t s : reorder::AtRandom(static_cast<uint32_t>(samples.refs.size()), seed)) {
    shuffled.refs.push_back(samples.refs[s]);
    shuffled.lengths.push_back(samples.lengths[s]);
  }
  return shuffled;
}

}  // namespace

std::span<const Policy> Policies() { return kPolicies; }

const Policy* FindPolicy(std::string_view name) { return reorder::FindByName(kPolicies, name); }

std::string PolicyNames() { return reorder::NamesOf(kPolicies); }

absl::StatusOr<Plan> PlanByPolicy(const Policy& policy, const Job& job, const StepSamples& samples,
                                  const reorder::DummyItems& dummies) {
  Job by_policy = job;
  for (PhaseSpec& spec : by_policy.phases) {
    const bool is_llm = spec.phase == Phase::kLlm;
    spec.algorithm = AlgorithmOf(is_llm ? policy.llm : policy.encoders, spec.batching);
    spec.node_wise = !is_llm && policy.node_wise;
    spec.equal_counts = false;
  }
  reorder::PlanOptions options;
  options.microbatches_in_order = policy.in_order;
  options.microbatch_order = std::string(policy.order);
  if (!policy.shuffled) return reorder::MakePlan(by_policy, samples, dummies, options);
  return reorder::MakePlan(by_policy, Shuffled(samples, job.seed + samples.step + 1), dummies, options);
}

}  // namespace evenkeel::advise
