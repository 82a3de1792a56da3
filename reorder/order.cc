#include <algorithm>

#include "reorder/routes.h"
#include "reorder/units.h"

namespace evenkeel::reorder {
namespace {

// Counts per bucket, shifted by one, become where each bucket begins.
void ToBegins(std::span<uint32_t> begin) {
  for (size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
}

// Sorts the items of one phase into their buckets by counting, in two streams: images, then videos, each with
// its dummies behind it. Before that they are sorted by the llm's batches, in which they are taken.
class ItemOrder {
 public:
  ItemOrder(const LlmUnits& llm, const PhasePlan& llm_plan, const EncoderUnits& units, PhasePlan& phase_plan,
            const SampleItem& dummy, Workspace& workspace)
      : llm_(llm),
        units_(units),
        llm_plan_(llm_plan),
        phase_plan_(phase_plan),
        dummy_(dummy),
        dummy_is_video_(dummy.medium == Medium::kVideo),
        buckets_(phase_plan.ranks.size() * phase_plan.num_microbatches),
        next_(workspace.Zeros<Next>(2 * buckets_)),
        taken_begin_(workspace.Zeros<uint32_t>(llm_plan.begin.size())),
        taken_(workspace.Take<Item>(units.item.size())),
        dummies_(workspace.Take<uint32_t>(buckets_)),
        bucket_rows_(workspace.Take<uint64_t>(buckets_)) {}

  void Count(uint32_t min_items) {
    ForEach([&](size_t i, uint32_t batch, uint32_t stream) {
      ++taken_begin_[batch + 1];
      ++next_[stream].at;
      next_[stream].row += units_.rows[i];
    });
    ToBegins(taken_begin_);
    const uint64_t dummy_rows = dummy_.lengths.output_rows;
    phase_plan_.begin.resize(buckets_ + 1);
    for (size_t b = 0; b < buckets_; ++b) {
      Next &images = next_[2 * b], &videos = next_[2 * b + 1];
      const uint32_t begin = phase_plan_.begin[b], items = images.at + videos.at;
      const uint32_t dummies = items < min_items ? min_items - items : 0;
      Next& before_dummies = dummy_is_video_ ? videos : images;
      before_dummies.at += dummies;
      before_dummies.row += dummies * dummy_rows;
      dummies_[b] = dummies;
      phase_plan_.begin[b + 1] = begin + items + dummies;
      bucket_rows_[b] = images.row + videos.row;
      // From counts to where the next of each stream goes.
      videos = {begin, begin + images.at, images.row};
      images = {begin, begin, 0};
    }
    phase_plan_.order.resize(phase_plan_.begin.back());
  }

  void SortByBatch(Workspace& workspace) {
    const Workspace::Scope scope(workspace);
    const std::span<uint32_t> next = workspace.Take<uint32_t>(taken_begin_.size());
    std::copy(taken_begin_.begin(), taken_begin_.end(), next.begin());
    ForEach([&](size_t i, uint32_t batch, uint32_t stream) {
      taken_[next[batch]++] = {static_cast<uint32_t>(i), units_.item[i], units_.rows[i], stream};
    });
  }

  void PlaceItems(RouteComposer& routes) {
    // Pointers, because whatever is stored might otherwise be one of the vectors.
    uint32_t* const order = phase_plan_.order.data();
    uint32_t* const position = units_.position.data();
    const Item* item = taken_.data();
    for (uint32_t rank = 0; rank < llm_plan_.ranks.size(); ++rank) {
      for (uint32_t m = 0; m < llm_plan_.num_microbatches; ++m) {
        const uint32_t batch = rank * llm_plan_.num_microbatches + m;
        for (const Item* const end = taken_.data() + taken_begin_[batch + 1]; item < end; ++item) {
          Next& stream = next_[item->stream];
          const uint32_t at = stream.at++;
          order[at] = item->item;
          position[item->index] = at - stream.begin;
          routes.Add(item->stream / 2, stream.row, item->rows);
          stream.row += item->rows;
        }
        routes.EndBatch(rank, m);
      }
    }
  }

  std::span<const uint64_t> bucket_rows() const { return bucket_rows_; }

  // Where PlaceItems left off in the stream of the dummy's medium.
  void AppendDummies(std::vector<PlannedItem>& dummies) {
    const uint32_t microbatches = phase_plan_.num_microbatches;
    for (uint32_t b = 0; b < buckets_; ++b) {
      uint32_t next = next_[2 * b + dummy_is_video_].at;
      for (uint32_t d = 0; d < dummies_[b]; ++d, ++next) {
        phase_plan_.order[next] = static_cast<uint32_t>(llm_.medium.size() + dummies.size());
        dummies.push_back({.sample = kDummy,
                           .ordinal = d,
                           .medium = dummy_.medium,
                           .lengths = dummy_.lengths,
                           .place = {b / microbatches, b % microbatches, next - phase_plan_.begin[b]}});
      }
    }
  }

 private:
  // An item as the llm takes it, four to a cache line.
  struct Item {
    uint32_t index = 0;  // of the phase
    uint32_t item = 0;   // into Plan::items
    uint32_t rows = 0;
    uint32_t stream = 0;  // 2 * bucket, videos 1 more
  };

  // Of a stream.
  struct Next {
    uint32_t begin = 0;  // of its bucket, in the phase's order
    uint32_t at = 0;     // of its next item there
    uint64_t row = 0;    // of its next item, in the bucket's encoder output
  };

  // Calls `visit(index, batch of the llm, stream)` for every item.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    const uint32_t microbatches = llm_plan_.num_microbatches;
    const uint32_t encoder_microbatches = phase_plan_.num_microbatches;
    for (size_t i = 0; i < units_.item.size(); ++i) {
      const uint32_t s = units_.sample[i];
      const uint32_t m = microbatches == 1 ? 0 : llm_.microbatch[s];
      const uint32_t bucket =
          encoder_microbatches == 1 ? units_.rank[i] : units_.rank[i] * encoder_microbatches + m;
      visit(i, llm_.rank[s] * microbatches + m, 2 * bucket + units_.video[i]);
    }
  }

  const LlmUnits& llm_;
  const EncoderUnits& units_;
  const PhasePlan& llm_plan_;
  PhasePlan& phase_plan_;
  const SampleItem& dummy_;
  const bool dummy_is_video_;
  const size_t buckets_;
  const std::span<Next> next_;             // [streams]
  const std::span<uint32_t> taken_begin_;  // [llm batches + 1] into `taken_`
  const std::span<Item> taken_;            // by llm batch, then by sample and ordinal
  const std::span<uint32_t> dummies_;      // [buckets]
  const std::span<uint64_t> bucket_rows_;  // [buckets] dummies included
};

}  // namespace

void OrderSamples(LlmUnits& llm, PhasePlan& phase_plan, Workspace& workspace) {
  const uint32_t microbatches = phase_plan.num_microbatches;
  const size_t samples = llm.rank.size();
  phase_plan.begin.assign(phase_plan.ranks.size() * microbatches + 1, 0);
  for (size_t s = 0; s < samples; ++s) ++phase_plan.begin[llm.rank[s] * microbatches + llm.microbatch[s] + 1];
  ToBegins(phase_plan.begin);
  phase_plan.order.resize(samples);
  const Workspace::Scope scope(workspace);
  const std::span<uint32_t> next = workspace.Take<uint32_t>(phase_plan.begin.size());
  std::copy(phase_plan.begin.begin(), phase_plan.begin.end(), next.begin());
  for (uint32_t s = 0; s < samples; ++s) {
    const uint32_t bucket = llm.rank[s] * microbatches + llm.microbatch[s];
    const uint32_t at = next[bucket]++;
    phase_plan.order[at] = s;
    llm.position[s] = at - phase_plan.begin[bucket];
  }
}

void OrderItems(const LlmUnits& llm, const PhasePlan& llm_plan, uint32_t min_items, const SampleItem& dummy,
                EncoderUnits& units, PhasePlan& phase_plan, std::vector<PlannedItem>& dummies,
                std::vector<Route>& routes, Workspace& workspace) {
  units.position = workspace.Take<uint32_t>(units.item.size());
  const Workspace::Scope scope(workspace);
  ItemOrder order(llm, llm_plan, units, phase_plan, dummy, workspace);
  order.Count(min_items);
  order.SortByBatch(workspace);
  RouteComposer composer(phase_plan, llm_plan);
  order.PlaceItems(composer);
  composer.Finish(order.bucket_rows(), routes);
  order.AppendDummies(dummies);
}

}  // namespace evenkeel::reorder
