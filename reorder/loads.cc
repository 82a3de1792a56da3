#include "reorder/loads.h"

#include <algorithm>

namespace evenkeel::reorder {
namespace {

// Which microbatch each sample would be in if nothing were balanced.
std::vector<uint32_t> DealtMicrobatches(const Job& job, const Layout& layout,
                                        std::span<const uint32_t> tokens, uint32_t& num_microbatches) {
  const uint64_t capacity = CapacityTokens(job);
  const uint32_t ranks = layout.llm_ranks.size();
  const bool padded = layout.llm->batching == Batching::kPadded;
  std::vector<uint32_t> microbatch(tokens.size(), 0);
  num_microbatches = 1;
  if (capacity == 0) return microbatch;
  struct Open {
    uint32_t index = 0;
    uint64_t count = 0, sum = 0, longest = 0;
  };
  std::vector<Open> open(ranks);
  for (size_t s = 0; s < tokens.size(); ++s) {
    Open& batch = open[s % ranks];
    const uint64_t longest = std::max<uint64_t>(batch.longest, tokens[s]);
    const uint64_t grown = padded ? (batch.count + 1) * longest : batch.sum + tokens[s];
    if (batch.count > 0 && grown > capacity) batch = {.index = batch.index + 1};
    ++batch.count;
    batch.sum += tokens[s];
    batch.longest = std::max<uint64_t>(batch.longest, tokens[s]);
    microbatch[s] = batch.index;
    num_microbatches = std::max(num_microbatches, batch.index + 1);
  }
  return microbatch;
}

// Sums the cost of batches whose units arrive rank by rank, batch by batch.
void MeasureAfter(const PhaseSpec& spec, const Plan& plan, PhasePlan& phase) {
  BatchCost cost(spec.cost, spec.batching);
  phase.load_after.assign(phase.ranks.size(), 0);
  phase.tokens_after.assign(phase.ranks.size(), 0);
  for (size_t bucket = 0; bucket + 1 < phase.begin.size(); ++bucket) {
    const size_t rank = bucket / phase.num_microbatches;
    for (uint32_t at = phase.begin[bucket]; at < phase.begin[bucket + 1]; ++at) {
      const uint32_t unit = phase.order[at];
      const uint32_t length =
          phase.phase == Phase::kLlm ? plan.samples[unit].llm_length : plan.items[unit].lengths.cost_length;
      cost.Add(length);
      phase.tokens_after[rank] += length;
    }
    phase.load_after[rank] += cost.Take();
  }
}

void MeasureBefore(const PhaseSpec& spec, std::span<const uint32_t> bucket_of, uint32_t num_batches,
                   std::span<const uint32_t> lengths, PhasePlan& phase) {
  const size_t ranks = phase.ranks.size();
  phase.load_before.assign(ranks, 0);
  phase.tokens_before.assign(ranks, 0);
  std::vector<BatchCost> costs(ranks * num_batches, BatchCost(spec.cost, spec.batching));
  for (size_t i = 0; i < lengths.size(); ++i) {
    costs[bucket_of[i]].Add(lengths[i]);
    phase.tokens_before[bucket_of[i] / num_batches] += lengths[i];
  }
  for (size_t b = 0; b < costs.size(); ++b) phase.load_before[b / num_batches] += costs[b].Take();
}

}  // namespace

uint64_t CapacityTokens(const Job& job) {
  const uint64_t capacity = job.microbatch.capacity_tokens, pad_to = job.microbatch.pad_to;
  if (capacity == 0 || pad_to == 0) return std::max(capacity, pad_to);
  return std::min(capacity, pad_to);
}

std::vector<Load> ScaledCosts(const Cost& cost, Batching batching, std::span<const uint32_t> lengths) {
  double sum = 0, dearest = 0;
  std::vector<double> costs(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    costs[i] = CleanCost(cost, lengths[i]);
    sum += costs[i];
    dearest = std::max(dearest, costs[i]);
  }
  const Scale scale(batching == Batching::kPadded ? dearest * static_cast<double>(lengths.size()) : sum);
  std::vector<Load> scaled(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) scaled[i] = scale(costs[i]);
  return scaled;
}

void MeasureLoads(const Job& job, const Layout& layout, std::span<const uint32_t> tokens, const Plan& plan,
                  PhasePlan& llm, std::vector<PhasePlan>& encoders) {
  uint32_t dealt = 1;
  const std::vector<uint32_t> microbatch = DealtMicrobatches(job, layout, tokens, dealt);
  const uint32_t ranks = layout.llm_ranks.size();
  std::vector<uint32_t> bucket_of(tokens.size());
  for (uint32_t s = 0; s < tokens.size(); ++s) bucket_of[s] = s % ranks * dealt + microbatch[s];
  MeasureBefore(*layout.llm, bucket_of, dealt, tokens, llm);
  MeasureAfter(*layout.llm, plan, llm);
  for (size_t e = 0; e < encoders.size(); ++e) {
    const PhaseSpec& spec = *layout.encoders[e];
    const uint32_t batches = spec.runs == Runs::kOncePerMicrobatch ? dealt : 1;
    std::vector<uint32_t> lengths;
    bucket_of.clear();
    for (const PlannedItem& item : plan.items) {
      if (item.sample == kDummy) break;  // dummies come last
      if (PhaseOf(item.medium) != spec.phase) continue;
      lengths.push_back(item.lengths.cost_length);
      const uint32_t rank = layout.neighbours[e].beside[item.sample % ranks];
      bucket_of.push_back(rank * batches + (batches == 1 ? 0 : microbatch[item.sample]));
    }
    MeasureBefore(spec, bucket_of, batches, lengths, encoders[e]);
    MeasureAfter(spec, plan, encoders[e]);
  }
}

}  // namespace evenkeel::reorder
