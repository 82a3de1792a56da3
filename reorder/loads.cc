// Turns lengths into costs, and adds up what every rank has of them.
#include "reorder/loads.h"

#include <algorithm>
#include <utility>

#include "reorder/microbatch/microbatches.h"

namespace evenkeel::reorder {
namespace {

constexpr Cost kNoCost = {.constant = 0, .linear = 0};

Cost SummedCost(const PhaseSpec& spec) {
  if (spec.batching == Batching::kPadded) return kNoCost;
  Cost cost = spec.cost;
  if (spec.padded_attention) cost.quadratic = 0;
  return cost;
}

Cost PaddedCost(const PhaseSpec& spec) {
  if (spec.batching == Batching::kPadded) return spec.cost;
  if (!spec.padded_attention) return kNoCost;
  return {.constant = 0, .linear = 0, .quadratic = spec.cost.quadratic, .mask_factor = spec.cost.mask_factor};
}

void Record(const BatchCosts& before, const BatchCosts& after, PhasePlan& plan) {
  plan.load_before = before.Loads(), plan.tokens_before = before.tokens();
  plan.load_after = after.Loads(), plan.tokens_after = after.tokens();
}

}  // namespace

uint64_t CapacityTokens(const Job& job) {
  if (job.groups.given) return job.groups.LargestTokens();
  const uint64_t capacity = job.microbatch.capacity_tokens, pad_to = job.microbatch.pad_to;
  if (capacity == 0 || pad_to == 0) return std::max(capacity, pad_to);
  return std::min(capacity, pad_to);
}

std::vector<Load> LoadsOf(const Cost& cost, Batching batching, std::span<const uint32_t> lengths,
                          std::span<const uint32_t> first) {
  std::vector<double> costs(lengths.size());
  for (size_t i = 0; i < costs.size(); ++i) costs[i] = CleanCost(cost, lengths[i]);
  for (size_t i = 0; i < first.size(); ++i) costs[i] = CleanCost(cost, lengths[i], first[i]);
  double total = 0;
  if (batching == Batching::kPadded) {
    for (double c : costs) total = std::max(total, c);
    total *= static_cast<double>(costs.size());
  } else {
    // Four sums, of every fourth cost each, in this order: plans depend on how the total is rounded.
    double sum[4] = {};
    const size_t fours = costs.size() / 4 * 4;
    for (size_t i = 0; i < costs.size(); ++i) sum[i < fours ? i % 4 : 0] += costs[i];
    total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  const Scale scale(total);
  std::vector<Load> loads(costs.size());
  std::transform(costs.begin(), costs.end(), loads.begin(), scale);
  return loads;
}

BatchCosts::BatchCosts(const PhaseSpec& spec, size_t ranks, size_t batches_per_rank)
    : summed_(SummedCost(spec)),
      padded_(PaddedCost(spec)),
      batches_per_rank_(batches_per_rank),
      batches_(ranks * batches_per_rank),
      tokens_(ranks, 0) {}

std::vector<double> BatchCosts::Loads() const {
  std::vector<double> loads(tokens_.size(), 0);
  for (size_t b = 0; b < batches_.size(); ++b) {
    loads[b / batches_per_rank_] += batches_[b].sum + batches_[b].count * batches_[b].heaviest;
  }
  return loads;
}

void MeasureLoads(const Job& job, const Layout& layout, const LlmUnits& llm,
                  const std::vector<EncoderUnits>& encoders, PhasePlan& llm_plan,
                  std::vector<PhasePlan>& encoder_plans) {
  // Where each sample would be if nothing were balanced.
  const uint32_t num_ranks = layout.llm_ranks.size();
  std::vector<uint32_t> dealt_rank(llm.tokens.size());
  for (uint32_t s = 0; s < dealt_rank.size(); ++s) dealt_rank[s] = s % num_ranks;
  const Split dealt = FillInOrder({.num_ranks = num_ranks,
                                   .rank = dealt_rank,
                                   .tokens = llm.tokens,
                                   .batching = layout.llm->batching,
                                   .capacity_tokens = CapacityTokens(job)});
  BatchCosts before(*layout.llm, num_ranks, dealt.num_microbatches);
  BatchCosts after(*layout.llm, num_ranks, llm_plan.num_microbatches);
  for (uint32_t s = 0; s < dealt_rank.size(); ++s) {
    before.Add(dealt_rank[s], dealt.microbatch[s], llm.tokens[s], llm.ChosenOf(s));
    after.Add(llm.rank[s], llm.microbatch[s], llm.tokens[s], llm.ChosenOf(s));
  }
  Record(before, after, llm_plan);
  for (size_t e = 0; e < encoders.size(); ++e) {
    const PhaseSpec& spec = *layout.encoders[e];
    const EncoderUnits& units = encoders[e];
    const bool per_microbatch = spec.runs == Runs::kOncePerMicrobatch;
    BatchCosts without(spec, spec.ranks.size(), per_microbatch ? dealt.num_microbatches : 1);
    BatchCosts with(spec, spec.ranks.size(), encoder_plans[e].num_microbatches);
    for (size_t i = 0; i < units.item.size(); ++i) {
      const uint32_t s = units.sample[i];
      without.Add(layout.neighbours[e].default_rank[dealt_rank[s]], per_microbatch ? dealt.microbatch[s] : 0,
                  units.length[i]);
      with.Add(units.rank[i], per_microbatch ? llm.microbatch[s] : 0, units.length[i]);
    }
    for (const PlannedItem& dummy : units.dummies) {
      with.Add(dummy.place.rank, dummy.place.microbatch, dummy.lengths.cost_length);
    }
    Record(without, with, encoder_plans[e]);
  }
}

}  // namespace evenkeel::reorder
