#include "reorder/loads.h"

#include <algorithm>
#include <utility>

#include "reorder/microbatches.h"

namespace evenkeel::reorder {
namespace {

// Which microbatch each sample would be in if nothing were balanced.
Split Deal(const Job& job, const Layout& layout, std::span<const uint32_t> tokens) {
  const uint64_t capacity = CapacityTokens(job);
  if (capacity == 0) return {.microbatch = std::vector<uint32_t>(tokens.size(), 0)};
  std::vector<uint32_t> rank(tokens.size());
  for (size_t s = 0; s < rank.size(); ++s) rank[s] = static_cast<uint32_t>(s % layout.llm_ranks.size());
  return FillInOrder({.num_ranks = layout.llm_ranks.size(),
                      .rank = rank,
                      .tokens = tokens,
                      .batching = layout.llm->batching,
                      .capacity_tokens = capacity});
}

// The loads and tokens of one phase: unit i is in batch `batch[i]`, and every rank has `batches_per_rank`.
struct Measured {
  std::vector<double> load;
  std::vector<uint64_t> tokens;
};

Measured Measure(const PhaseSpec& spec, std::span<const uint32_t> batch, uint32_t batches_per_rank,
                 std::span<const double> cost, std::span<const uint32_t> length) {
  BatchCosts costs(spec.batching, spec.ranks.size() * batches_per_rank);
  Measured measured{.tokens = std::vector<uint64_t>(spec.ranks.size(), 0)};
  for (size_t i = 0; i < batch.size(); ++i) {
    costs.Add(batch[i], cost[i]);
    measured.tokens[batches_per_rank == 1 ? batch[i] : batch[i] / batches_per_rank] += length[i];
  }
  measured.load = costs.PerRank(batches_per_rank);
  return measured;
}

}  // namespace

uint64_t CapacityTokens(const Job& job) {
  const uint64_t capacity = job.microbatch.capacity_tokens, pad_to = job.microbatch.pad_to;
  if (capacity == 0 || pad_to == 0) return std::max(capacity, pad_to);
  return std::min(capacity, pad_to);
}

std::vector<double> Costs(const Cost& cost, std::span<const uint32_t> lengths) {
  std::vector<double> costs(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) costs[i] = CleanCost(cost, lengths[i]);
  return costs;
}

std::vector<Load> ToLoads(Batching batching, std::span<const double> costs) {
  double sum = 0, dearest = 0;
  for (double cost : costs) {
    sum += cost;
    dearest = std::max(dearest, cost);
  }
  const Scale scale(batching == Batching::kPadded ? dearest * static_cast<double>(costs.size()) : sum);
  std::vector<Load> loads(costs.size());
  for (size_t i = 0; i < costs.size(); ++i) loads[i] = scale(costs[i]);
  return loads;
}

std::vector<double> BatchCosts::PerRank(size_t batches_per_rank) const {
  std::vector<double> loads(batches_.size() / batches_per_rank, 0);
  for (size_t b = 0; b < batches_.size(); ++b) {
    loads[b / batches_per_rank] +=
        batching_ == Batching::kPacked ? batches_[b].sum : batches_[b].count * batches_[b].dearest;
  }
  return loads;
}

void MeasureLoads(const Job& job, const Layout& layout, const LlmUnits& llm,
                  const std::vector<EncoderUnits>& encoders, const Plan& plan, PhasePlan& llm_plan,
                  std::vector<PhasePlan>& encoder_plans) {
  const auto record = [](Measured before, Measured after, PhasePlan& phase) {
    phase.load_before = std::move(before.load);
    phase.tokens_before = std::move(before.tokens);
    phase.load_after = std::move(after.load);
    phase.tokens_after = std::move(after.tokens);
  };
  const auto [dealt, microbatch] = Deal(job, layout, llm.tokens);
  const uint32_t ranks = layout.llm_ranks.size();
  std::vector<uint32_t> before(llm.tokens.size()), after(llm.tokens.size());
  for (uint32_t s = 0, rank = 0; s < before.size(); ++s) {
    before[s] = rank * dealt + microbatch[s];
    after[s] = llm.rank[s] * plan.num_microbatches + llm.microbatch[s];
    rank = rank + 1 == ranks ? 0 : rank + 1;
  }
  record(Measure(*layout.llm, before, dealt, llm.cost, llm.tokens),
         Measure(*layout.llm, after, plan.num_microbatches, llm.cost, llm.tokens), llm_plan);
  for (size_t e = 0; e < encoders.size(); ++e) {
    const PhaseSpec& spec = *layout.encoders[e];
    const EncoderUnits& units = encoders[e];
    const uint32_t batches = spec.runs == Runs::kOncePerMicrobatch ? dealt : 1;
    before.resize(units.item.size());
    for (size_t i = 0; i < before.size(); ++i) {
      const uint32_t s = units.sample[i];
      before[i] = layout.neighbours[e].beside[s % ranks] * batches + (batches == 1 ? 0 : microbatch[s]);
    }
    Measured without = Measure(spec, before, batches, units.cost, units.length);
    // Dummies are the last items of the plan; those of this phase join its units.
    std::vector<double> cost = units.cost;
    std::vector<uint32_t> length = units.length;
    after = units.bucket;
    for (size_t i = plan.items.size(); i-- > 0 && plan.items[i].sample == kDummy;) {
      const PlannedItem& dummy = plan.items[i];
      if (PhaseOf(dummy.medium) != spec.phase) continue;
      cost.push_back(CleanCost(spec.cost, dummy.lengths.cost_length));
      length.push_back(dummy.lengths.cost_length);
      after.push_back(dummy.place.rank * encoder_plans[e].num_microbatches + dummy.place.microbatch);
    }
    record(std::move(without), Measure(spec, after, encoder_plans[e].num_microbatches, cost, length),
           encoder_plans[e]);
  }
}

}  // namespace evenkeel::reorder
