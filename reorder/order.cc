#include <algorithm>

#include "reorder/units.h"

namespace evenkeel::reorder {
namespace {

// Counts per bucket, shifted by one, become where each bucket begins.
void ToBegins(std::vector<uint32_t>& begin) {
  for (size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
}

// Sorts the items of one phase into their buckets by counting, in two streams: images, then videos, each with
// its dummies behind it.
class ItemOrder {
 public:
  ItemOrder(EncoderUnits& units, PhasePlan& phase_plan, const SampleItem& dummy)
      : units_(units),
        phase_plan_(phase_plan),
        dummy_(dummy),
        dummy_is_video_(dummy.medium == Medium::kVideo),
        buckets_(phase_plan.ranks.size() * phase_plan.num_microbatches) {}

  void Count(const LlmUnits& llm, uint32_t min_items) {
    const uint32_t microbatches = phase_plan_.num_microbatches;
    const uint64_t dummy_rows = dummy_.lengths.output_rows;
    phase_plan_.begin.assign(buckets_ + 1, 0);
    next_.assign(2 * buckets_, {});
    items_.resize(units_.item.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      const uint32_t microbatch = microbatches == 1 ? 0 : llm.microbatch[units_.sample[i]];
      const uint32_t stream = 2 * (units_.rank[i] * microbatches + microbatch) + units_.video[i];
      items_[i] = {units_.item[i], units_.rows[i], stream, 0};
      ++next_[stream].at;
      next_[stream].row += units_.rows[i];
    }
    dummies_.assign(buckets_, 0);
    units_.bucket_rows.assign(buckets_, 0);
    for (size_t b = 0; b < buckets_; ++b) {
      Next &images = next_[2 * b], &videos = next_[2 * b + 1];
      const uint32_t items = images.at + videos.at;
      const uint32_t dummies = items < min_items ? min_items - items : 0;
      Next& before_dummies = dummy_is_video_ ? videos : images;
      before_dummies.at += dummies;
      before_dummies.row += dummies * dummy_rows;
      dummies_[b] = dummies;
      phase_plan_.begin[b + 1] = phase_plan_.begin[b] + items + dummies;
      units_.bucket_rows[b] = images.row + videos.row;
      // From counts to where the next of each stream goes.
      videos = {phase_plan_.begin[b] + images.at, images.row};
      images = {phase_plan_.begin[b], 0};
    }
    phase_plan_.order.resize(phase_plan_.begin.back());
  }

  void PlaceItems(const PhasePlan& llm_plan, Plan& plan) {
    const uint32_t microbatches = phase_plan_.num_microbatches;
    const std::vector<uint32_t>& samples = llm_plan.order;
    units_.outgoing.resize(items_.size());
    units_.outgoing_begin.assign(1, 0);
    units_.outgoing_begin.reserve(llm_plan.begin.size());
    // Pointers, because whatever is stored might otherwise be one of the vectors.
    const uint32_t* const begin = units_.begin.data();
    uint32_t* const order = phase_plan_.order.data();
    Item* const items = items_.data();
    Next* const next = next_.data();
    EncoderUnits::Outgoing* const outgoing = units_.outgoing.data();
    uint32_t out = 0;
    for (size_t batch = 0; batch + 1 < llm_plan.begin.size(); ++batch) {
      for (size_t k = llm_plan.begin[batch]; k < llm_plan.begin[batch + 1]; ++k) {
        // Samples of a rank are anywhere in memory.
        if (k + 32 < samples.size()) __builtin_prefetch(begin + samples[k + 32]);
        if (k + 16 < samples.size()) __builtin_prefetch(items + begin[samples[k + 16]], 1);
        for (uint32_t i = begin[samples[k]]; i < begin[samples[k] + 1]; ++i) {
          Item item = items[i];
          Next& stream = next[item.stream];
          order[stream.at] = item.item;
          items[i].at = stream.at;
          outgoing[out++] = {stream.row, item.rows, item.stream / 2};
          ++stream.at;
          stream.row += item.rows;
        }
      }
      units_.outgoing_begin.push_back(out);
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      const uint32_t bucket = items_[i].stream / 2, rank = units_.rank[i];
      plan.items[items_[i].item].place = {rank, bucket - rank * microbatches,
                                          items_[i].at - phase_plan_.begin[bucket]};
    }
  }

  // Where PlaceItems left off in the stream of the dummy's medium.
  void AppendDummies(Plan& plan) {
    const uint32_t microbatches = phase_plan_.num_microbatches;
    for (uint32_t b = 0; b < buckets_; ++b) {
      uint32_t next = next_[2 * b + dummy_is_video_].at;
      for (uint32_t d = 0; d < dummies_[b]; ++d, ++next) {
        phase_plan_.order[next] = static_cast<uint32_t>(plan.items.size());
        plan.items.push_back({.sample = kDummy,
                              .ordinal = d,
                              .medium = dummy_.medium,
                              .lengths = dummy_.lengths,
                              .place = {b / microbatches, b % microbatches, next - phase_plan_.begin[b]}});
      }
    }
  }

 private:
  // What is read of an item, four to a cache line.
  struct Item {
    uint32_t item = 0;  // into Plan::items
    uint32_t rows = 0;
    uint32_t stream = 0;  // 2 * bucket, videos 1 more
    uint32_t at = 0;      // in the phase's order
  };

  struct Next {
    uint32_t at = 0;   // in the phase's order
    uint64_t row = 0;  // in the bucket's encoder output
  };

  EncoderUnits& units_;
  PhasePlan& phase_plan_;
  const SampleItem& dummy_;
  const bool dummy_is_video_;
  const size_t buckets_;
  std::vector<Item> items_;        // of the phase
  std::vector<uint32_t> dummies_;  // [buckets]
  std::vector<Next> next_;         // [streams]
};

}  // namespace

void OrderSamples(const LlmUnits& llm, Plan& plan, PhasePlan& phase_plan) {
  const uint32_t microbatches = phase_plan.num_microbatches;
  const size_t samples = llm.rank.size();
  phase_plan.begin.assign(phase_plan.ranks.size() * microbatches + 1, 0);
  for (size_t s = 0; s < samples; ++s) ++phase_plan.begin[llm.rank[s] * microbatches + llm.microbatch[s] + 1];
  ToBegins(phase_plan.begin);
  phase_plan.order.resize(samples);
  std::vector<uint32_t> next(phase_plan.begin.begin(), phase_plan.begin.end() - 1);
  for (uint32_t s = 0; s < samples; ++s) {
    const uint32_t bucket = llm.rank[s] * microbatches + llm.microbatch[s];
    const uint32_t at = next[bucket]++;
    phase_plan.order[at] = s;
    plan.samples[s].place = {llm.rank[s], llm.microbatch[s], at - phase_plan.begin[bucket]};
  }
}

void OrderItems(const LlmUnits& llm, const PhasePlan& llm_plan, uint32_t min_items, const SampleItem& dummy,
                EncoderUnits& units, Plan& plan, PhasePlan& phase_plan) {
  ItemOrder order(units, phase_plan, dummy);
  order.Count(llm, min_items);
  order.PlaceItems(llm_plan, plan);
  order.AppendDummies(plan);
}

}  // namespace evenkeel::reorder
