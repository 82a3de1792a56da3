#include <algorithm>
#include <utility>

#include "reorder/routes.h"
#include "reorder/units.h"

namespace evenkeel::reorder {
namespace {

// Counts per bucket, shifted by one, become where each bucket begins.
void ToBegins(std::span<uint32_t> begin) {
  for (size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
}

// Sorts the items of one phase into their buckets by counting, in two streams: images, then videos, each with
// its dummies behind it, and each in the order of the llm's batches. Most items are where the llm part of
// their sample is: where a bucket belongs to one of the llm's batches, the items of that batch follow each
// other in it as they do in the plan. Only those from other batches have to be sorted, to go before or behind
// them.
class ItemOrder {
 public:
  ItemOrder(const LlmUnits& llm, const PhasePlan& llm_plan, const Neighbours& neighbours,
            const EncoderUnits& units, PhasePlan& phase_plan, const SampleItem& dummy, Workspace& workspace)
      : llm_(llm),
        units_(units),
        llm_plan_(llm_plan),
        phase_plan_(phase_plan),
        dummy_(dummy),
        dummy_is_video_(dummy.medium == Medium::kVideo),
        buckets_(phase_plan.ranks.size() * phase_plan.num_microbatches),
        bucket_(workspace.Zeros<Bucket>(buckets_)),
        guests_(workspace.Zeros<Guests>(2 * buckets_)),
        dummies_(workspace.Take<uint32_t>(buckets_)),
        bucket_rows_(workspace.Take<uint64_t>(buckets_)) {
    for (Bucket& bucket : bucket_) bucket.own_batch = kNowhere;
    const uint32_t microbatches = phase_plan.num_microbatches;
    if (microbatches != llm_plan.num_microbatches) return;
    for (uint32_t r = 0; r < neighbours.rank.size(); ++r) {
      if (neighbours.rank[r] == kNowhere) continue;
      for (uint32_t m = 0; m < microbatches; ++m) {
        bucket_[neighbours.rank[r] * microbatches + m].own_batch = r * microbatches + m;
      }
    }
  }

  void Count(uint32_t min_items) {
    Bucket* const buckets = bucket_.data();
    const uint32_t* const rows = units_.rows.data();
    ForEach([&](uint32_t i, uint32_t batch, uint32_t b, bool video) {
      Bucket& bucket = buckets[b];
      if (batch == bucket.own_batch) {
        bucket.Pass(video, rows[i]);
      } else {
        const uint32_t stream = 2 * b + video;
        guests_[stream].Of(batch, bucket.own_batch).Pass(rows[i]);
        guest_.push_back({batch, stream, rows[i], {}});
      }
    });
    const uint64_t dummy_rows = dummy_.lengths.output_rows;
    phase_plan_.begin.resize(buckets_ + 1);
    for (size_t b = 0; b < buckets_; ++b) {
      Bucket& bucket = bucket_[b];
      bucket.begin = phase_plan_.begin[b];
      const uint32_t items = CountOf(b, false) + CountOf(b, true);
      const uint32_t dummies = items < min_items ? min_items - items : 0;
      Next next = {bucket.begin, 0};
      const auto begin_part = [&](uint32_t& at, uint64_t& row) {
        std::swap(at, next.at), std::swap(row, next.row);
        next.at += at, next.row += row;
      };
      for (const bool video : {false, true}) {
        Guests& guests = guests_[2 * b + video];
        begin_part(guests.before.at, guests.before.row);
        begin_part(bucket.at[video], bucket.row[video]);
        begin_part(guests.after.at, guests.after.row);
        if (video == dummy_is_video_) next.at += dummies, next.row += dummies * dummy_rows;
      }
      dummies_[b] = dummies;
      phase_plan_.begin[b + 1] = next.at;
      bucket_rows_[b] = next.row;
    }
    ResizeToWrite(phase_plan_.order, phase_plan_.begin.back());
  }

  void PlaceItems(RouteComposer& routes, Workspace& workspace) {
    PlaceGuests(workspace);
    // Pointers, because whatever is stored might otherwise be one of the vectors.
    uint32_t *const order = phase_plan_.order.data(), *const position = units_.position.data();
    const uint32_t *const item = units_.item.data(), *const rows = units_.rows.data();
    Bucket* const buckets = bucket_.data();
    const Guest* guest = guest_.data();
    ForEach([&](uint32_t i, uint32_t batch, uint32_t b, bool video) {
      Bucket& bucket = buckets[b];
      const Next place = batch == bucket.own_batch ? bucket.Pass(video, rows[i]) : (guest++)->place;
      order[place.at] = item[i];
      position[i] = place.at - bucket.begin;
      routes.Add(batch, b, place.row, rows[i]);
    });
  }

  std::span<const uint64_t> bucket_rows() const { return bucket_rows_; }

  // Behind all items of their stream.
  void AppendDummies(std::vector<PlannedItem>& dummies) {
    const uint32_t microbatches = phase_plan_.num_microbatches;
    for (uint32_t b = 0; b < buckets_; ++b) {
      uint32_t next = guests_[2 * b + dummy_is_video_].after.at;
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
  // Where the next item goes. While items are counted: how many there were.
  struct Next {
    uint32_t at = 0;   // in the phase's order
    uint64_t row = 0;  // in the bucket's encoder output

    Next Pass(uint32_t rows) {
      const Next place = *this;
      ++at, row += rows;
      return place;
    }
  };

  // What is read of a bucket together, two to a cache line.
  struct Bucket {
    uint32_t own_batch = kNowhere;  // of the llm: on the same global rank
    uint32_t begin = 0;             // in the phase's order
    // Of images, and of videos: where the next one of the own batch goes, as in Next.
    uint32_t at[2] = {};
    uint64_t row[2] = {};

    Next Pass(bool video, uint32_t rows) {
      const Next place = {at[video], row[video]};
      ++at[video], row[video] += rows;
      return place;
    }
  };

  // Those items of a stream that are of other batches than the bucket's own.
  struct Guests {
    Next before, after;  // the own ones

    Next& Of(uint32_t batch, uint32_t own_batch) { return batch < own_batch ? before : after; }
  };
  struct Guest {
    uint32_t batch = 0;
    uint32_t stream = 0;  // 2 * bucket, videos 1 more
    uint32_t rows = 0;
    Next place;
  };

  // While items are counted.
  uint32_t CountOf(size_t b, bool video) const {
    const Guests& guests = guests_[2 * b + video];
    return bucket_[b].at[video] + guests.before.at + guests.after.at;
  }

  // In the order of their batches.
  void PlaceGuests(Workspace& workspace) {
    const Workspace::Scope scope(workspace);
    const std::span<uint32_t> begin = workspace.Zeros<uint32_t>(llm_plan_.begin.size());
    const std::span<uint32_t> by_batch = workspace.Take<uint32_t>(guest_.size());
    for (const Guest& guest : guest_) ++begin[guest.batch + 1];
    ToBegins(begin);
    for (uint32_t g = 0; g < guest_.size(); ++g) by_batch[begin[guest_[g].batch]++] = g;
    for (uint32_t g : by_batch) {
      Guest& guest = guest_[g];
      guest.place =
          guests_[guest.stream].Of(guest.batch, bucket_[guest.stream / 2].own_batch).Pass(guest.rows);
    }
  }

  // Calls `visit(index, batch of the llm, bucket, whether it is a video)` for every item.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    const uint32_t microbatches = llm_plan_.num_microbatches;
    const uint32_t encoder_microbatches = phase_plan_.num_microbatches;
    const uint32_t *const sample = units_.sample.data(), *const rank = units_.rank.data();
    const uint32_t *const llm_rank = llm_.rank.data(), *const microbatch = llm_.microbatch.data();
    const bool* const video = units_.video.data();
    const uint32_t items = static_cast<uint32_t>(units_.item.size());
    for (uint32_t i = 0; i < items; ++i) {
      const uint32_t s = sample[i];
      const uint32_t m = microbatches == 1 ? 0 : microbatch[s];
      const uint32_t bucket = encoder_microbatches == 1 ? rank[i] : rank[i] * encoder_microbatches + m;
      visit(i, llm_rank[s] * microbatches + m, bucket, video[i]);
    }
  }

  const LlmUnits& llm_;
  const EncoderUnits& units_;
  const PhasePlan& llm_plan_;
  PhasePlan& phase_plan_;
  const SampleItem& dummy_;
  const bool dummy_is_video_;
  const size_t buckets_;
  const std::span<Bucket> bucket_;         // [buckets]
  const std::span<Guests> guests_;         // [2 * buckets] of images and videos in turn
  const std::span<uint32_t> dummies_;      // [buckets]
  const std::span<uint64_t> bucket_rows_;  // [buckets] dummies included
  std::vector<Guest> guest_;               // in the order of the plan
};

}  // namespace

void OrderSamples(LlmUnits& llm, PhasePlan& phase_plan, Workspace& workspace) {
  const uint32_t microbatches = phase_plan.num_microbatches;
  const size_t samples = llm.rank.size();
  const uint32_t *const rank = llm.rank.data(), *const microbatch = llm.microbatch.data();
  const auto bucket_of = [&](size_t s) {
    return microbatches == 1 ? rank[s] : rank[s] * microbatches + microbatch[s];
  };
  phase_plan.begin.assign(phase_plan.ranks.size() * microbatches + 1, 0);
  uint32_t* const begin = phase_plan.begin.data();
  for (size_t s = 0; s < samples; ++s) ++begin[bucket_of(s) + 1];
  ToBegins(phase_plan.begin);
  ResizeToWrite(phase_plan.order, samples);
  const Workspace::Scope scope(workspace);
  const std::span<uint32_t> next = workspace.Take<uint32_t>(phase_plan.begin.size());
  std::copy(phase_plan.begin.begin(), phase_plan.begin.end(), next.begin());
  uint32_t *const order = phase_plan.order.data(), *const position = llm.position.data();
  for (uint32_t s = 0; s < samples; ++s) {
    const uint32_t bucket = bucket_of(s), at = next[bucket]++;
    order[at] = s;
    position[s] = at - begin[bucket];
  }
}

void OrderItems(const LlmUnits& llm, const PhasePlan& llm_plan, const Neighbours& neighbours,
                uint32_t min_items, const SampleItem& dummy, EncoderUnits& units, PhasePlan& phase_plan,
                std::vector<PlannedItem>& dummies, std::vector<Route>& routes, Workspace& workspace) {
  units.position = workspace.Take<uint32_t>(units.item.size());
  const Workspace::Scope scope(workspace);
  ItemOrder order(llm, llm_plan, neighbours, units, phase_plan, dummy, workspace);
  order.Count(min_items);
  RouteComposer composer(phase_plan, llm_plan);
  order.PlaceItems(composer, workspace);
  composer.Finish(order.bucket_rows(), routes);
  order.AppendDummies(dummies);
}

}  // namespace evenkeel::reorder
