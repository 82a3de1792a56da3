// Positions: sorts samples and items into their batches, numbers them there, and fills short batches with
// dummies.
#include <algorithm>
#include <numeric>

#include "reorder/keyed_shuffle.h"
#include "reorder/routes.h"
#include "reorder/units.h"

namespace evenkeel::reorder {
namespace {

// A stable sort by counting: `order` by the bucket of each, and where each bucket begins.
struct Buckets {
  std::vector<uint32_t> begin;  // [buckets + 1]
  std::vector<uint32_t> order;

  std::span<const uint32_t> of(size_t bucket) const {
    return {order.data() + begin[bucket], order.data() + begin[bucket + 1]};
  }
};

template <typename BucketOf>
Buckets SortIntoBuckets(std::span<const uint32_t> units, size_t num_buckets, const BucketOf& bucket_of) {
  Buckets buckets{.begin = std::vector<uint32_t>(num_buckets + 1, 0),
                  .order = std::vector<uint32_t>(units.size())};
  for (uint32_t unit : units) ++buckets.begin[bucket_of(unit) + 1];
  std::partial_sum(buckets.begin.begin(), buckets.begin.end(), buckets.begin.begin());
  std::vector<uint32_t> next(buckets.begin.begin(), buckets.begin.end() - 1);
  for (uint32_t unit : units) buckets.order[next[bucket_of(unit)]++] = unit;
  return buckets;
}

// All items, those of rejected sequences that follow the others last.
std::vector<uint32_t> InTurn(const EncoderUnits& units) {
  std::vector<uint32_t> items = InOrder(units.item.size());
  if (units.rejected.empty()) return items;
  std::stable_partition(items.begin(), items.end(), [&](uint32_t i) { return !units.rejected[i]; });
  return items;
}

// Appends the dummies of a batch, which follow all items of their medium.
void AppendDummies(uint32_t count, uint32_t bucket, uint32_t first_dummy, EncoderUnits& units,
                   PhasePlan& phase_plan) {
  const uint32_t microbatches = phase_plan.num_microbatches;
  for (uint32_t d = 0; d < count; ++d) {
    const uint32_t position = static_cast<uint32_t>(phase_plan.order.size()) - phase_plan.begin[bucket];
    phase_plan.order.push_back(first_dummy + static_cast<uint32_t>(units.dummies.size()));
    units.dummies.push_back({.sample = kDummy,
                             .ordinal = d,
                             .medium = units.dummy.medium,
                             .tower = units.dummy.tower,
                             .lengths = units.dummy.lengths,
                             .place = {bucket / microbatches, bucket % microbatches, position}});
  }
}

}  // namespace

void OrderSamples(LlmUnits& llm, PhasePlan& phase_plan) {
  const uint32_t microbatches = phase_plan.num_microbatches;
  const auto bucket_of = [&](uint32_t s) { return llm.rank[s] * microbatches + llm.microbatch[s]; };
  Buckets batches =
      SortIntoBuckets(InOrder(llm.rank.size()), phase_plan.ranks.size() * microbatches, bucket_of);
  llm.position.resize(llm.rank.size());
  for (uint32_t at = 0; at < batches.order.size(); ++at) {
    const uint32_t s = batches.order[at];
    llm.position[s] = at - batches.begin[bucket_of(s)];
  }
  phase_plan.begin = std::move(batches.begin);
  phase_plan.order = std::move(batches.order);
}

std::vector<Route> OrderItems(const LlmUnits& llm, const PhasePlan& llm_plan, const GroupsOfRoute& groups,
                              uint32_t min_items, uint32_t first_dummy, EncoderUnits& units,
                              PhasePlan& phase_plan) {
  const uint32_t llm_microbatches = llm_plan.num_microbatches, microbatches = phase_plan.num_microbatches;
  const size_t num_batches = phase_plan.ranks.size() * microbatches;
  std::vector<uint32_t> batch(units.item.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i] = units.rank[i] * microbatches + (microbatches == 1 ? 0 : llm.microbatch[units.sample[i]]);
  }
  // In the order in which the llm takes them; then that order within every batch, by medium.
  const Buckets by_llm_batch =
      SortIntoBuckets(InTurn(units), llm_plan.ranks.size() * llm_microbatches, [&](uint32_t i) {
        const uint32_t s = units.sample[i];
        return llm.rank[s] * llm_microbatches + llm.microbatch[s];
      });
  constexpr uint32_t kTurns = EncoderUnits::kTurns;
  const Buckets streams = SortIntoBuckets(by_llm_batch.order, kTurns * num_batches,
                                          [&](uint32_t i) { return kTurns * batch[i] + units.turn[i]; });
  const uint32_t turn_of_dummies = EncoderUnits::TurnOf(units.dummy.medium);
  std::vector<uint64_t> first_row(batch.size()), batch_rows(num_batches, 0);
  units.position.resize(batch.size());
  phase_plan.begin.assign(1, 0);
  phase_plan.order.reserve(batch.size());
  for (uint32_t b = 0; b < num_batches; ++b) {
    const uint32_t items = streams.begin[kTurns * b + kTurns] - streams.begin[kTurns * b];
    const uint32_t num_dummies = items < min_items ? min_items - items : 0;
    uint64_t row = 0;
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      for (uint32_t i : streams.of(kTurns * b + turn)) {
        units.position[i] = static_cast<uint32_t>(phase_plan.order.size()) - phase_plan.begin[b];
        phase_plan.order.push_back(units.item[i]);
        first_row[i] = row;
        row += units.rows[i];
      }
      if (turn != turn_of_dummies) continue;
      AppendDummies(num_dummies, b, first_dummy, units, phase_plan);
      row += uint64_t{num_dummies} * units.dummy.lengths.output_rows;
    }
    batch_rows[b] = row;
    phase_plan.begin.push_back(static_cast<uint32_t>(phase_plan.order.size()));
  }
  return ComposeRoutes({.encoder = phase_plan,
                        .llm = llm_plan,
                        .items = by_llm_batch.order,
                        .llm_batch_begin = by_llm_batch.begin,
                        .encoder_batch = batch,
                        .first_row = first_row,
                        .rows = units.rows,
                        .encoder_batch_rows = batch_rows,
                        .groups = groups});
}

}  // namespace evenkeel::reorder
