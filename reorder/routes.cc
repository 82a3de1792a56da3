#include "reorder/routes.h"

#include <algorithm>
#include <utility>

namespace evenkeel::reorder {

RouteComposer::RouteComposer(const PhasePlan& encoder, const PhasePlan& llm)
    : encoder_(encoder),
      llm_(llm),
      segments_(encoder.num_microbatches),
      row_ends_(llm.ranks.size() * llm.num_microbatches),
      batches_(llm.ranks.size() * llm.num_microbatches) {
  runs_.reserve(batches_.size());
  group_ = encoder.ranks;
  if (encoder.ranks != llm.ranks) group_.insert(group_.end(), llm.ranks.begin(), llm.ranks.end());
  if (!std::is_sorted(group_.begin(), group_.end())) std::sort(group_.begin(), group_.end());
  group_.erase(std::unique(group_.begin(), group_.end()), group_.end());
  encoder_at_ = PlacesOf(encoder.ranks);
  llm_at_ = PlacesOf(llm.ranks);
}

std::vector<uint32_t> RouteComposer::PlacesOf(std::span<const uint32_t> ranks) const {
  std::vector<uint32_t> places;
  places.reserve(ranks.size());
  uint32_t next = 0;  // where ranks ascend without gaps, each is behind the last
  for (uint32_t global : ranks) {
    if (next == group_.size() || group_[next] != global) {
      next = static_cast<uint32_t>(std::lower_bound(group_.begin(), group_.end(), global) - group_.begin());
    }
    places.push_back(next++);
  }
  return places;
}

std::vector<RouteComposer::Run> RouteComposer::RunsByBatch() const {
  std::vector<size_t> next;
  next.reserve(batches_.size());
  size_t begin = 0;
  for (const Batch& batch : batches_) {
    next.push_back(begin);
    begin += batch.runs;
  }
  std::vector<Run> sorted(runs_.size());
  for (const Run& run : runs_) sorted[next[run.batch]++] = run;
  return sorted;
}

void RouteComposer::FillSegments() {
  const bool per_microbatch = encoder_.num_microbatches > 1;
  const std::vector<Run> runs = RunsByBatch();
  if (!per_microbatch) segments_[0].reserve(runs.size());
  auto run = runs.begin();
  for (uint32_t r = 0; r < llm_.ranks.size(); ++r) {
    uint64_t row = 0;  // of the batch, among all that the rank receives in the exchange
    for (uint32_t m = 0; m < llm_.num_microbatches; ++m) {
      const size_t b = r * size_t{llm_.num_microbatches} + m;
      for (const auto end = run + batches_[b].runs; run < end; ++run) {
        const uint64_t rows = (run + 1 < end ? (run + 1)->to_row : batches_[b].rows) - run->to_row;
        if (!received_.empty() && received_.back().from == run->bucket &&
            received_.back().from_row + received_.back().rows == run->from_row) {
          received_.back().rows += rows;  // it goes on from the microbatch before
        } else {
          received_.push_back({run->bucket, llm_at_[r], run->from_row, row + run->to_row, rows});
        }
      }
      row_ends_[b] = row += batches_[b].rows;
      if (per_microbatch) EndReceiver(segments_[m]), row = 0;
    }
    if (!per_microbatch) EndReceiver(segments_[0]);
  }
}

// From buckets to their places in the group, by these.
void RouteComposer::EndReceiver(std::vector<Segment>& segments) {
  bool sorted = true;
  uint32_t last = 0;
  for (Segment& segment : received_) {
    segment.from = encoder_at_[segment.from / encoder_.num_microbatches];
    sorted &= last <= segment.from;
    last = segment.from;
  }
  if (!sorted) {
    std::stable_sort(received_.begin(), received_.end(),
                     [](const Segment& a, const Segment& b) { return a.from < b.from; });
  }
  segments.insert(segments.end(), received_.begin(), received_.end());
  received_.clear();
}

void RouteComposer::Finish(std::span<const uint64_t> bucket_rows, std::vector<Route>& routes) {
  FillSegments();
  for (uint32_t exchange = 0; exchange < encoder_.num_microbatches; ++exchange) {
    FillRoute(exchange, bucket_rows, routes.emplace_back());
  }
}

void RouteComposer::FillRoute(uint32_t exchange, std::span<const uint64_t> bucket_rows, Route& route) {
  route.from = encoder_.phase;
  route.to = Phase::kLlm;
  route.microbatch = exchange;
  route.ranks = group_;
  route.per_rank.resize(group_.size());
  const uint32_t microbatches = llm_.num_microbatches;
  for (RankRoute& rank : route.per_rank) rank.microbatch_offsets.resize(microbatches + 1);
  for (uint32_t r = 0; r < encoder_.ranks.size(); ++r) {
    route.per_rank[encoder_at_[r]].rows_in = bucket_rows[r * size_t{encoder_.num_microbatches} + exchange];
  }
  for (uint32_t r = 0; r < llm_.ranks.size(); ++r) {
    RankRoute& mine = route.per_rank[llm_at_[r]];
    const uint64_t* const ends = row_ends_.data() + r * size_t{microbatches};
    for (uint32_t m = 0; m < microbatches; ++m) {
      // Where every microbatch has an exchange of its own, this one holds the rows of one.
      if (encoder_.num_microbatches == 1) mine.microbatch_offsets[m + 1] = ends[m];
      if (encoder_.num_microbatches > 1 && m >= exchange) mine.microbatch_offsets[m + 1] = ends[exchange];
    }
    mine.rows_out = mine.microbatch_offsets.back();
  }
  // By receiver, so that every sender's segments come out by peer, then in the receiver's order.
  std::vector<Segment>& segments = segments_[exchange];
  if (!std::is_sorted(llm_at_.begin(), llm_at_.end())) {
    std::stable_sort(segments.begin(), segments.end(),
                     [](const Segment& a, const Segment& b) { return a.to < b.to; });
  }
  std::vector<std::pair<uint32_t, uint32_t>> counts(group_.size());  // sent, received
  for (const Segment& segment : segments) ++counts[segment.from].first, ++counts[segment.to].second;
  for (size_t g = 0; g < counts.size(); ++g) {
    route.per_rank[g].send.reserve(counts[g].first);
    route.per_rank[g].receive.reserve(counts[g].second);
  }
  for (const Segment& segment : segments) {
    route.per_rank[segment.from].send.push_back({segment.to, segment.from_row, segment.rows});
    route.per_rank[segment.to].receive.push_back({segment.from, segment.to_row, segment.rows});
  }
}

}  // namespace evenkeel::reorder
