#include <algorithm>

#include "reorder/units.h"

namespace evenkeel::reorder {
namespace {

// Counts per (rank, microbatch) become where each begins.
void ToBegins(std::vector<uint32_t>& begin) {
  for (size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
}

}  // namespace

void OrderSamples(const LlmUnits& llm, Plan& plan, PhasePlan& phase_plan) {
  const uint32_t microbatches = phase_plan.num_microbatches;
  phase_plan.begin.assign(phase_plan.ranks.size() * microbatches + 1, 0);
  const size_t samples = llm.rank.size();
  for (size_t s = 0; s < samples; ++s)
    ++phase_plan.begin[llm.rank[s] * size_t{microbatches} + llm.microbatch[s] + 1];
  ToBegins(phase_plan.begin);
  phase_plan.order.resize(samples);
  std::vector<uint32_t> next(phase_plan.begin.begin(), phase_plan.begin.end() - 1);
  for (uint32_t s = 0; s < samples; ++s) {
    const size_t bucket = llm.rank[s] * size_t{microbatches} + llm.microbatch[s];
    const uint32_t at = next[bucket]++;
    phase_plan.order[at] = s;
    plan.samples[s].place = {llm.rank[s], llm.microbatch[s], at - phase_plan.begin[bucket]};
  }
}

void OrderItems(const EncoderUnits& units, const PhasePlan& llm, uint32_t min_items, const SampleItem& dummy,
                Plan& plan, PhasePlan& phase_plan) {
  const uint32_t microbatches = phase_plan.num_microbatches;
  const size_t buckets = phase_plan.ranks.size() * microbatches;
  const bool once_per_step = microbatches == 1;
  // While begin holds counts it is shifted by one, so that the sums are the begins.
  phase_plan.begin.assign(buckets + 1, 0);
  std::vector<uint32_t> bucket_of(units.item.size()), images(buckets, 0);
  for (size_t i = 0; i < units.item.size(); ++i) {
    PlannedItem& item = plan.items[units.item[i]];
    item.place.rank = units.rank[i];
    item.place.microbatch = once_per_step ? 0 : plan.samples[units.sample[i]].place.microbatch;
    bucket_of[i] = static_cast<uint32_t>(units.rank[i] * size_t{microbatches} + item.place.microbatch);
    ++phase_plan.begin[bucket_of[i] + 1];
    if (item.medium != Medium::kVideo) ++images[bucket_of[i]];
  }
  std::vector<uint32_t> dummies(buckets, 0);
  for (size_t b = 0; b < buckets; ++b) {
    uint32_t& count = phase_plan.begin[b + 1];
    if (count < min_items) {
      dummies[b] = min_items - count;
      count = min_items;
    }
  }
  ToBegins(phase_plan.begin);
  phase_plan.order.resize(phase_plan.begin.back());

  // Images, their dummies, videos, their dummies.
  const bool dummy_is_video = dummy.medium == Medium::kVideo;
  std::vector<uint32_t> next_image(phase_plan.begin.begin(), phase_plan.begin.end() - 1), next_video(buckets);
  for (size_t b = 0; b < buckets; ++b)
    next_video[b] = next_image[b] + images[b] + (dummy_is_video ? 0 : dummies[b]);
  for (uint32_t s : llm.order) {
    for (uint32_t i = units.begin[s]; i < units.begin[s + 1]; ++i) {
      PlannedItem& item = plan.items[units.item[i]];
      const uint32_t bucket = bucket_of[i];
      const uint32_t at = item.medium == Medium::kVideo ? next_video[bucket]++ : next_image[bucket]++;
      phase_plan.order[at] = units.item[i];
      item.place.position = at - phase_plan.begin[bucket];
    }
  }
  for (size_t b = 0; b < buckets; ++b) {
    uint32_t& next = dummy_is_video ? next_video[b] : next_image[b];
    for (uint32_t d = 0; d < dummies[b]; ++d, ++next) {
      phase_plan.order[next] = static_cast<uint32_t>(plan.items.size());
      plan.items.push_back({.sample = kDummy,
                            .ordinal = d,
                            .medium = dummy.medium,
                            .lengths = dummy.lengths,
                            .place = {static_cast<uint32_t>(b / microbatches),
                                      static_cast<uint32_t>(b % microbatches), next - phase_plan.begin[b]}});
    }
  }
}

}  // namespace evenkeel::reorder
