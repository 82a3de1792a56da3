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

// The loads and tokens of one phase's ranks, as units are added to their batches.
class Meter {
 public:
  Meter(const PhaseSpec& spec, uint32_t batches_per_rank)
      : batches_per_rank_(batches_per_rank),
        costs_(spec, spec.ranks.size() * batches_per_rank),
        tokens_(spec.ranks.size(), 0) {}

  void Add(uint32_t rank, uint32_t microbatch, uint32_t length) {
    tokens_[rank] += length;
    costs_.Add(rank * size_t{batches_per_rank_} + microbatch, length);
  }
  void Record(std::vector<double>& load, std::vector<uint64_t>& tokens) {
    load = costs_.PerRank(batches_per_rank_);
    tokens = std::move(tokens_);
  }

 private:
  const uint32_t batches_per_rank_;
  BatchCosts costs_;
  std::vector<uint64_t> tokens_;
};

}  // namespace

uint64_t CapacityTokens(const Job& job) {
  const uint64_t capacity = job.microbatch.capacity_tokens, pad_to = job.microbatch.pad_to;
  if (capacity == 0 || pad_to == 0) return std::max(capacity, pad_to);
  return std::min(capacity, pad_to);
}

std::vector<Load> LoadsOf(const Cost& cost, Batching batching, std::span<const uint32_t> lengths) {
  std::vector<double> costs(lengths.size());
  for (size_t i = 0; i < costs.size(); ++i) costs[i] = CleanCost(cost, lengths[i]);
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

BatchCosts::BatchCosts(const PhaseSpec& spec, size_t num_batches)
    : summed_(SummedCost(spec)), padded_(PaddedCost(spec)), batches_(num_batches) {}

std::vector<double> BatchCosts::PerRank(size_t batches_per_rank) const {
  std::vector<double> loads(batches_.size() / batches_per_rank, 0);
  for (size_t b = 0; b < batches_.size(); ++b) {
    loads[b / batches_per_rank] += batches_[b].sum + batches_[b].count * batches_[b].heaviest;
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
  Meter before(*layout.llm, dealt.num_microbatches), after(*layout.llm, llm_plan.num_microbatches);
  for (uint32_t s = 0; s < dealt_rank.size(); ++s) {
    before.Add(dealt_rank[s], dealt.microbatch[s], llm.tokens[s]);
    after.Add(llm.rank[s], llm.microbatch[s], llm.tokens[s]);
  }
  before.Record(llm_plan.load_before, llm_plan.tokens_before);
  after.Record(llm_plan.load_after, llm_plan.tokens_after);
  for (size_t e = 0; e < encoders.size(); ++e) {
    const PhaseSpec& spec = *layout.encoders[e];
    const EncoderUnits& units = encoders[e];
    const bool per_microbatch = spec.runs == Runs::kOncePerMicrobatch;
    Meter without(spec, per_microbatch ? dealt.num_microbatches : 1),
        with(spec, encoder_plans[e].num_microbatches);
    for (size_t i = 0; i < units.item.size(); ++i) {
      const uint32_t s = units.sample[i];
      without.Add(layout.neighbours[e].default_rank[dealt_rank[s]], per_microbatch ? dealt.microbatch[s] : 0,
                  units.length[i]);
      with.Add(units.rank[i], per_microbatch ? llm.microbatch[s] : 0, units.length[i]);
    }
    for (const PlannedItem& dummy : units.dummies) {
      with.Add(dummy.place.rank, dummy.place.microbatch, dummy.lengths.cost_length);
    }
    without.Record(encoder_plans[e].load_before, encoder_plans[e].tokens_before);
    with.Record(encoder_plans[e].load_after, encoder_plans[e].tokens_after);
  }
}

}  // namespace evenkeel::reorder
