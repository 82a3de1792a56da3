// The table of policies, and how a policy is turned into a job and planner options.
#include "advise/policies.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/planned_tokens.h"
#include "core/status.h"
#include "reorder/by_name.h"
#include "reorder/pack/bin_lengths.h"
#include "reorder/pack/pack.h"
#include "reorder/pipeline/microbatch_order.h"

namespace evenkeel::advise {
namespace {

using enum Balancing;

constexpr Policy kPolicies[] = {
    {.name = "random",
     .summary = "samples and microbatches in random order",
     .in_order = true,
     .shuffled = true,
     .order = "random"},
    {.name = "none", .summary = "samples assigned in the order in which they come", .in_order = true},
    {.name = "megatron",
     .summary = "Megatron-LM: microbatches filled in order, which ranks take in turn; nothing balanced",
     .in_order = true,
     .fills = true},
    {.name = "llm_only", .summary = "the llm balanced, items kept with their samples", .llm = kTailored},
    {.name = "disttrain",
     .summary = "DistTrain: reordering within and across microbatches",
     .llm = kIntraMicrobatch,
     .in_order = true,
     .order = "disttrain",
     .by_encoders = true},
    {.name = "omnibal",
     .summary = "OmniBal: samples packed into bins that are alike, dealt in turn",
     .in_order = true,
     .packs = true},
    {.name = "all_packed",
     .summary = "every phase balanced as if packed",
     .llm = kTailored,
     .encoders = kPacked},
    {.name = "all_padded",
     .summary = "every phase balanced as if padded",
     .llm = kTailored,
     .encoders = kPadded},
    {.name = "post_balancing",
     .summary = "OrchMLLM: every phase balanced on its own, by its batching",
     .llm = kTailored,
     .encoders = kTailored},
    {.name = "post_balancing_node_wise",
     .summary = "the same, and batches then permuted by node",
     .llm = kTailored,
     .encoders = kTailored,
     .node_wise = true},
    {.name = "balance_without_moving",
     .summary = "ours: all phases balanced together, items kept; microbatches by local search",
     .llm = kWithoutMoving,
     .encoders = kWithoutMoving,
     .order = "local_search"},
    {.name = "job", .summary = "the job's own algorithms, order and bins", .as_job = true},
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

// Of the llm, and enough for the alignment of every sample.
uint64_t TokensOfBin(const Job& job) {
  const uint64_t align = std::max(1u, job.microbatch.align);
  return (job.batch.pack.CapacityOf(Phase::kLlm.name()) + align - 1) / align * align;
}

StepSamples Shuffled(const StepSamples& samples, uint64_t seed) {
  StepSamples shuffled{.step = samples.step};
  for (uint32_t s : reorder::AtRandom(static_cast<uint32_t>(samples.refs.size()), seed)) {
    shuffled.refs.push_back(samples.refs[s]);
    shuffled.lengths.push_back(samples.lengths[s]);
  }
  return shuffled;
}

// Microbatches as Megatron-LM makes them: the next sample opens another one where it does not fit, and the data-parallel
// ranks take them in turn. Without a capacity a microbatch is one sample (--micro-batch-size 1).
StepSamples Filled(const Job& job, const StepSamples& samples) {
  const uint64_t align = std::max(1u, job.microbatch.align), capacity = job.microbatch.capacity_tokens;
  const bool is_padded = job.phase(Phase::kLlm)->batching == Batching::kPadded;
  StepSamples filled{
      .step = samples.step, .refs = samples.refs, .lengths = samples.lengths, .bin_begin = {0}};
  uint64_t count = 0, sum = 0, longest = 0;  // of the microbatch that is being filled
  for (size_t s = 0; s < samples.lengths.size(); ++s) {
    const uint64_t tokens = PlannedTokens(samples.lengths[s], align, job.phase(Phase::kLlm)->batching).tokens;
    const uint64_t with_it = is_padded ? (count + 1) * std::max(longest, tokens) : sum + tokens;
    if (count > 0 && with_it > capacity) {
      filled.bin_begin.push_back(static_cast<uint32_t>(s));
      count = sum = longest = 0;
    }
    ++count, sum += tokens, longest = std::max(longest, tokens);
  }
  const size_t multiple = job.phase(Phase::kLlm)->ranks.size() * std::max(1u, job.microbatch.count_multiple);
  const size_t bins = (filled.bin_begin.size() + multiple - 1) / multiple * multiple;
  filled.bin_begin.resize(bins + 1, static_cast<uint32_t>(samples.lengths.size()));
  return filled;
}

// The samples in the order of their bins. Bins are empty where there are too few samples for all ranks.
absl::StatusOr<StepSamples> Packed(const Job& job, const StepSamples& samples) {
  const uint32_t align = std::max(1u, job.microbatch.align),
                 ranks = static_cast<uint32_t>(job.phase(Phase::kLlm)->ranks.size());
  reorder::PackInput input{.algorithm = "omnibal",
                           .devices = ranks,
                           .seed = job.seed + samples.step,
                           .multiple = ranks * std::max(1u, job.microbatch.count_multiple)};
  EVENKEEL_ASSIGN_OR_RETURN(input.phases, reorder::BinLengths(job.phases, samples.lengths, align));
  for (reorder::PackPhase& phase : input.phases) {
    if (phase.phase == Phase::kLlm) phase.capacity = job.microbatch.capacity_tokens;
  }
  EVENKEEL_ASSIGN_OR_RETURN(const reorder::Packing packing, reorder::Pack(input));
  StepSamples packed{.step = samples.step, .bin_begin = {0}};
  for (const std::vector<uint32_t>& bin : reorder::SamplesOfBins(packing, input.multiple)) {
    for (uint32_t s : bin) {
      packed.refs.push_back(samples.refs[s]);
      packed.lengths.push_back(samples.lengths[s]);
    }
    packed.bin_begin.push_back(static_cast<uint32_t>(packed.refs.size()));
  }
  return packed;
}

}  // namespace

std::span<const Policy> Policies() { return kPolicies; }

const Policy* FindPolicy(std::string_view name) { return reorder::FindByName(kPolicies, name); }

std::string PolicyNames() { return reorder::NamesOf(kPolicies); }

absl::StatusOr<Plan> PlanByPolicy(const Policy& policy, const Job& job, const StepSamples& samples,
                                  const reorder::DummyItems& dummies) {
  if (job.groups.given) {
    return absl::InvalidArgumentError(
        "the job has topology.context_parallel: dynamic, which this model of a step does not have; compare "
        "degrees with "
        "--context-parallel");
  }
  if (policy.as_job) return reorder::MakePlan(job, samples, dummies);
  Job by_policy = job;
  StepSamples opened;
  if (!samples.bin_begin.empty()) {
    opened = {.step = samples.step, .refs = samples.refs, .lengths = samples.lengths};
    by_policy.microbatch.capacity_tokens = TokensOfBin(job);
  }
  const StepSamples& drawn = samples.bin_begin.empty() ? samples : opened;
  for (PhaseSpec& spec : by_policy.phases) {
    const bool is_llm = spec.phase == Phase::kLlm;
    spec.algorithm = AlgorithmOf(is_llm ? policy.llm : policy.encoders, spec.batching);
    spec.node_wise = !is_llm && policy.node_wise;
    spec.equal_counts = false;
  }
  reorder::PlanOptions options;
  options.microbatches_in_order = policy.in_order;
  options.microbatch_order = std::string(policy.order);
  options.llm_by_encoders = policy.by_encoders;
  options.apart_in_turn = true;
  options.compares_splits = policy.llm == kWithoutMoving;
  if (policy.fills) return reorder::MakePlan(by_policy, Filled(by_policy, drawn), dummies, options);
  if (policy.packs) {
    EVENKEEL_ASSIGN_OR_RETURN(const StepSamples packed, Packed(by_policy, drawn));
    return reorder::MakePlan(by_policy, packed, dummies, options);
  }
  if (!policy.shuffled) return reorder::MakePlan(by_policy, drawn, dummies, options);
  return reorder::MakePlan(by_policy, Shuffled(drawn, job.seed + drawn.step + 1), dummies, options);
}

}  // namespace evenkeel::advise
