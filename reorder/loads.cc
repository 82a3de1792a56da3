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

// Whether a batch costs what it has tokens: these are added up anyway.
bool CostsItsTokens(const PhaseSpec& spec) {
  const Cost& cost = spec.cost;
  return spec.batching == Batching::kPacked && cost.constant == 0 && cost.linear == 1 &&
         cost.quadratic == 0 && cost.mask_factor == 0;
}

// The loads and tokens of one phase's ranks, as units are added to their batches.
class Meter {
 public:
  Meter(const PhaseSpec& spec, uint32_t batches_per_rank)
      : cost_(spec.cost),
        costs_its_tokens_(CostsItsTokens(spec)),
        batches_per_rank_(batches_per_rank),
        costs_(spec.batching, costs_its_tokens_ ? 0 : spec.ranks.size() * batches_per_rank),
        tokens_(spec.ranks.size(), 0) {}

  void Add(uint32_t rank, uint32_t microbatch, uint32_t length) {
    tokens_[rank] += length;
    if (costs_its_tokens_) return;
    costs_.Add(rank * size_t{batches_per_rank_} + microbatch, CleanCost(cost_, length));
  }
  void Record(std::vector<double>& load, std::vector<uint64_t>& tokens) {
    load = costs_its_tokens_ ? std::vector<double>(tokens_.begin(), tokens_.end())
                             : costs_.PerRank(batches_per_rank_);
    tokens = std::move(tokens_);
  }

 private:
  const Cost cost_;
  const bool costs_its_tokens_;
  const uint32_t batches_per_rank_;
  BatchCosts costs_;
  std::vector<uint64_t> tokens_;
};

// Four costs at a time, compiled twice as in families.cc.
constexpr size_t kAtOnce = 4;
typedef double Doubles __attribute__((vector_size(8 * kAtOnce), may_alias));
typedef int64_t Ints __attribute__((vector_size(8 * kAtOnce), may_alias));
typedef int64_t LooseInts __attribute__((vector_size(8 * kAtOnce), may_alias, aligned(8)));  // anywhere
constexpr double kTwoTo52 = 0x1p52;  // from here on doubles are whole, and their last bits count
constexpr int64_t kBitsOfTwoTo52 = 0x4330000000000000;

// CleanCost of lengths, `lengths` being the first of four.
EVENKEEL_INLINE void CleanCosts(const Cost& cost, const uint32_t* lengths, Doubles& costs) {
  const Ints wide = {lengths[0], lengths[1], lengths[2], lengths[3]};
  const Doubles n = (Doubles)(wide | kBitsOfTwoTo52) - kTwoTo52;
  const Doubles value = (cost.constant + cost.linear * n + cost.quadratic * n * n) * (1 + cost.mask_factor);
  const Doubles positive = value > 0 ? value : Doubles{};
  costs = positive < 1e200 ? positive : Doubles{} + 1e200;
}

// Adds the costs of every fourth length to `sum`; a multiple of four of them.
EVENKEEL_INLINE void AddCosts(const Cost& cost, std::span<const uint32_t> lengths, double* sum) {
  Doubles sums = {sum[0], sum[1], sum[2], sum[3]}, costs;
  for (size_t i = 0; i < lengths.size(); i += kAtOnce) {
    CleanCosts(cost, &lengths[i], costs);
    sums += costs;
  }
  for (size_t k = 0; k < kAtOnce; ++k) sum[k] = sums[k];
}

// What Scale makes of the costs; a multiple of four of them.
EVENKEEL_INLINE void ScaleCosts(const Cost& cost, double factor, std::span<const uint32_t> lengths,
                                Load* loads) {
  Doubles costs;
  for (size_t i = 0; i < lengths.size(); i += kAtOnce) {
    CleanCosts(cost, &lengths[i], costs);
    // The whole part, which is below 2^52: rounded to the nearest, and one less where that is above.
    const Doubles value = costs * factor + 0.5, nearest = (value + kTwoTo52) - kTwoTo52;
    const Doubles whole = nearest > value ? nearest - 1 : nearest;
    *reinterpret_cast<LooseInts*>(loads + i) = (Ints)(whole + kTwoTo52) - kBitsOfTwoTo52;
  }
}

void AddCostsBaseline(const Cost& cost, std::span<const uint32_t> lengths, double* sum) {
  AddCosts(cost, lengths, sum);
}
EVENKEEL_AVX2 void AddCostsAvx2(const Cost& cost, std::span<const uint32_t> lengths, double* sum) {
  AddCosts(cost, lengths, sum);
}
void ScaleCostsBaseline(const Cost& cost, double factor, std::span<const uint32_t> lengths, Load* loads) {
  ScaleCosts(cost, factor, lengths, loads);
}
EVENKEEL_AVX2 void ScaleCostsAvx2(const Cost& cost, double factor, std::span<const uint32_t> lengths,
                                  Load* loads) {
  ScaleCosts(cost, factor, lengths, loads);
}

}  // namespace

uint64_t CapacityTokens(const Job& job) {
  const uint64_t capacity = job.microbatch.capacity_tokens, pad_to = job.microbatch.pad_to;
  if (capacity == 0 || pad_to == 0) return std::max(capacity, pad_to);
  return std::min(capacity, pad_to);
}

void FillLoads(const Cost& cost, Batching batching, std::span<const uint32_t> lengths, std::span<Load> loads,
               Width width) {
  // Sums of every fourth, which do not wait for each other: the same on every build.
  double sum[kAtOnce] = {}, dearest = 0;
  const size_t fours = lengths.size() / kAtOnce * kAtOnce;
  if (batching == Batching::kPadded) {
    for (uint32_t length : lengths) dearest = std::max(dearest, CleanCost(cost, length));
    sum[0] = dearest * static_cast<double>(lengths.size());
  } else {
    (width != Width::kFour ? AddCostsAvx2 : AddCostsBaseline)(cost, lengths.first(fours), sum);
    for (size_t i = fours; i < lengths.size(); ++i) sum[0] += CleanCost(cost, lengths[i]);
  }
  const Scale scale((sum[0] + sum[1]) + (sum[2] + sum[3]));
  (width != Width::kFour ? ScaleCostsAvx2 : ScaleCostsBaseline)(cost, scale.factor(), lengths.first(fours),
                                                                loads.data());
  for (size_t i = fours; i < loads.size(); ++i) loads[i] = scale(CleanCost(cost, lengths[i]));
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
    before.Add(rank, dealt == 1 ? 0 : microbatch[s], llm.tokens[s]);
    after.Add(llm.rank[s], llm.microbatch[s], llm.tokens[s]);
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
      without.Add(beside[dealt_rank[s]], dealt > 1 && per_microbatch ? microbatch[s] : 0, units.length[i]);
      with.Add(units.rank[i], per_microbatch ? llm.microbatch[s] : 0, units.length[i]);
    }
    for (const PlannedItem& dummy : dummies) {
      if (PhaseOf(dummy.medium) != spec.phase) continue;
      with.Add(dummy.place.rank, dummy.place.microbatch, dummy.lengths.cost_length);
    }
    without.Record(encoder_plans[e].load_before, encoder_plans[e].tokens_before);
    with.Record(encoder_plans[e].load_after, encoder_plans[e].tokens_after);
  }
}

}  // namespace evenkeel::reorder
