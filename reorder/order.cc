#include <algorithm>

#include "reorder/units.h"

namespace evenkeel::reorder {
namespace {

// Counts per bucket, shifted by one, become where each bucket begins.
void ToBegins(std::vector<uint32_t>& begin) {
  for (size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
}

// Sorts the items of one phase into their buckets by counting, in two streams: images, then videos.
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
    phase_plan_.begin.assign(buckets_ + 1, 0);
    next_video_.assign(buckets_, 0);  // images, for now
    units_.bucket.resize(units_.item.size());
    for (size_t i = 0; i < units_.item.size(); ++i) {
      const uint32_t microbatch = microbatches == 1 ? 0 : llm.microbatch[units_.sample[i]];
      const uint32_t bucket = units_.rank[i] * microbatches + microbatch;
      units_.bucket[i] = bucket;
      ++phase_plan_.begin[bucket + 1];
      next_video_[bucket] += 1 - units_.video[i];
    }
    dummies_.assign(buckets_, 0);
    for (size_t b = 0; b < buckets_; ++b) {
      uint32_t& count = phase_plan_.begin[b + 1];
      dummies_[b] = count < min_items ? min_items - count : 0;
      count += dummies_[b];
    }
    ToBegins(phase_plan_.begin);
    next_image_.assign(phase_plan_.begin.begin(), phase_plan_.begin.end() - 1);
    for (size_t b = 0; b < buckets_; ++b)
      next_video_[b] += next_image_[b] + (dummy_is_video_ ? 0 : dummies_[b]);
    phase_plan_.order.resize(phase_plan_.begin.back());
  }

  void PlaceItems(const PhasePlan& llm_plan, Plan& plan) {
    unit_at_.assign(phase_plan_.order.size(), kNowhere);
    for (uint32_t s : llm_plan.order) {
      for (uint32_t i = units_.begin[s]; i < units_.begin[s + 1]; ++i) {
        std::vector<uint32_t>& next = units_.video[i] ? next_video_ : next_image_;
        const uint32_t at = next[units_.bucket[i]]++;
        unit_at_[at] = i;
        phase_plan_.order[at] = units_.item[i];
      }
    }
    units_.first_row.resize(units_.item.size());
    units_.bucket_rows.assign(buckets_, 0);
    std::vector<uint32_t> position(units_.item.size());
    for (size_t b = 0; b < buckets_; ++b) {
      uint64_t row = 0;
      for (uint32_t at = phase_plan_.begin[b]; at < phase_plan_.begin[b + 1]; ++at) {
        const uint32_t i = unit_at_[at];
        if (i == kNowhere) {
          row += dummy_.lengths.output_rows;
          continue;
        }
        units_.first_row[i] = row;
        position[i] = at - phase_plan_.begin[b];
        row += units_.rows[i];
      }
      units_.bucket_rows[b] = row;
    }
    const uint32_t microbatches = phase_plan_.num_microbatches;
    for (size_t i = 0; i < units_.item.size(); ++i) {
      plan.items[units_.item[i]].place = {units_.rank[i], units_.bucket[i] - units_.rank[i] * microbatches,
                                          position[i]};
    }
  }

  // Where PlaceItems left off in the stream of the dummy's medium.
  void AppendDummies(Plan& plan) {
    const uint32_t microbatches = phase_plan_.num_microbatches;
    for (uint32_t b = 0; b < buckets_; ++b) {
      uint32_t& next = dummy_is_video_ ? next_video_[b] : next_image_[b];
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
  EncoderUnits& units_;
  PhasePlan& phase_plan_;
  const SampleItem& dummy_;
  const bool dummy_is_video_;
  const size_t buckets_;
  std::vector<uint32_t> dummies_;                  // [buckets]
  std::vector<uint32_t> next_image_, next_video_;  // [buckets] where the next one goes
  std::vector<uint32_t> unit_at_;                  // parallel to the phase's order; kNowhere: a dummy
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
