#include "reorder/loads.h"

#include <algorithm>
#include <utility>

#include "reorder/microbatches.h"

namespace evenkeel::reorder {
namespace {

// Which microbatch each sample would be in if nothing were balanced; of none where there is but one.
Split Deal(const Job& job, const Layout& layout, std::span<const uint32_t> tokens) {
  const uint64_t capacity = CapacityTokens(job);
  if (capacity == 0) return {};
  std::vector<uint32_t> rank(tokens.size());
  for (size_t s = 0; s < rank.size(); ++s) rank[s] = static_cast<uint32_t>(s % layout.llm_ranks.size());
  return FillInOrder({.num_ranks = layout.llm_ranks.size(),
                      .rank = rank,
                      .tokens = tokens,
                      .batching = layout.llm->batching,
                      .capacity_tokens = capacity});
}

// The loads and tokens of one phase's ranks, as units are added to their batches.
class Meter {
 public:
  Meter(const PhaseSpec& spec, uint32_t batches_per_rank)
      : batches_per_rank_(batches_per_rank),
        costs_(spec.batching, spec.ranks.size() * batches_per_rank),
        tokens_(spec.ranks.size(), 0) {}

  void Add(uint32_t rank, uint32_t microbatch, double cost, uint32_t length) {
    costs_.Add(rank * size_t{batches_per_rank_} + microbatch, cost);
    tokens_[rank] += length;
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

void FillLoads(const Cost& cost, Batching batching, std::span<const uint32_t> lengths,
               std::span<Load> loads) {
  // Sums of every fourth, which do not wait for each other: the same on every build.
  double sum[4] = {}, dearest = 0;
  if (batching == Batching::kPadded) {
    for (uint32_t length : lengths) dearest = std::max(dearest, CleanCost(cost, length));
    sum[0] = dearest * static_cast<double>(lengths.size());
  } else {
    size_t i = 0;
    for (; i + 4 <= lengths.size(); i += 4) {
      for (size_t k = 0; k < 4; ++k) sum[k] += CleanCost(cost, lengths[i + k]);
    }
    for (; i < lengths.size(); ++i) sum[0] += CleanCost(cost, lengths[i]);
  }
  const Scale scale((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (size_t i = 0; i < loads.size(); ++i) loads[i] = scale(CleanCost(cost, lengths[i]));
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
                  const std::vector<EncoderUnits>& encoders, std::span<const PlannedItem> dummies,
                  Workspace& workspace, PhasePlan& llm_plan, std::vector<PhasePlan>& encoder_plans) {
  const auto [dealt, microbatch] = Deal(job, layout, llm.tokens);
  Meter before(*layout.llm, dealt), after(*layout.llm, llm_plan.num_microbatches);
  const Workspace::Scope scope(workspace);
  const std::span<uint32_t> dealt_rank = workspace.Take<uint32_t>(llm.tokens.size());
  for (uint32_t s = 0, rank = 0; s < dealt_rank.size(); ++s) {
    dealt_rank[s] = rank;
    const double cost = CleanCost(layout.llm->cost, llm.tokens[s]);
    before.Add(rank, dealt == 1 ? 0 : microbatch[s], cost, llm.tokens[s]);
    after.Add(llm.rank[s], llm.microbatch[s], cost, llm.tokens[s]);
    rank = rank + 1 == layout.llm_ranks.size() ? 0 : rank + 1;
  }
  before.Record(llm_plan.load_before, llm_plan.tokens_before);
  after.Record(llm_plan.load_after, llm_plan.tokens_after);
  for (size_t e = 0; e < encoders.size(); ++e) {
    const PhaseSpec& spec = *layout.encoders[e];
    const EncoderUnits& units = encoders[e];
    const std::vector<uint32_t>& beside = layout.neighbours[e].beside;
    const bool per_microbatch = spec.runs == Runs::kOncePerMicrobatch;
    Meter without(spec, per_microbatch ? dealt : 1), with(spec, encoder_plans[e].num_microbatches);
    for (size_t i = 0; i < units.item.size(); ++i) {
      const uint32_t s = units.sample[i];
      const double cost = CleanCost(spec.cost, units.length[i]);
      without.Add(beside[dealt_rank[s]], dealt > 1 && per_microbatch ? microbatch[s] : 0, cost,
                  units.length[i]);
      with.Add(units.rank[i], per_microbatch ? llm.microbatch[s] : 0, cost, units.length[i]);
    }
    for (const PlannedItem& dummy : dummies) {
      if (PhaseOf(dummy.medium) != spec.phase) continue;
      with.Add(dummy.place.rank, dummy.place.microbatch, CleanCost(spec.cost, dummy.lengths.cost_length),
               dummy.lengths.cost_length);
    }
    without.Record(encoder_plans[e].load_before, encoder_plans[e].tokens_before);
    with.Record(encoder_plans[e].load_after, encoder_plans[e].tokens_after);
  }
}

}  // namespace evenkeel::reorder
