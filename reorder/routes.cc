// Walks the items in the order in which the llm takes them: rows that follow each other on both sides are one
// segment, which its sender and its receiver both list.
#include "reorder/routes.h"

#include <algorithm>
#include <utility>

namespace evenkeel::reorder {
namespace {

// Rows that one member of the group sends to another; see Route::ranks.
struct Segment {
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t from_row = 0;
  uint64_t to_row = 0;
  uint64_t rows = 0;
};

class RouteComposer {
 public:
  explicit RouteComposer(const RouteProblem& problem)
      : problem_(problem),
        encoder_(problem.encoder),
        llm_(problem.llm),
        segments_(encoder_.num_microbatches) {
    group_ = encoder_.ranks;
    group_.insert(group_.end(), llm_.ranks.begin(), llm_.ranks.end());
    std::sort(group_.begin(), group_.end());
    group_.erase(std::unique(group_.begin(), group_.end()), group_.end());
    encoder_at_ = PlacesOf(encoder_.ranks);
    llm_at_ = PlacesOf(llm_.ranks);
  }

  std::vector<Route> Run() {
    FillSegments();
    std::vector<Route> routes;
    for (uint32_t exchange = 0; exchange < encoder_.num_microbatches; ++exchange) {
      routes.push_back(MakeRoute(exchange));
    }
    return routes;
  }

 private:
  // Where the ranks are in the group.
  std::vector<uint32_t> PlacesOf(std::span<const uint32_t> ranks) const {
    std::vector<uint32_t> places;
    for (uint32_t global : ranks) {
      const auto at = std::lower_bound(group_.begin(), group_.end(), global);
      places.push_back(static_cast<uint32_t>(at - group_.begin()));
    }
    return places;
  }

  // Per exchange: by receiver in the order of the llm's ranks, then in the receiver's order.
  void FillSegments() {
    const bool per_microbatch = encoder_.num_microbatches > 1;
    for (uint32_t r = 0; r < llm_.ranks.size(); ++r) {
      uint64_t row = 0;  // among all that the rank receives in the exchange
      for (uint32_t m = 0; m < llm_.num_microbatches; ++m) {
        const size_t batch = BatchOf(r, m);
        for (uint32_t k = problem_.llm_batch_begin[batch]; k < problem_.llm_batch_begin[batch + 1]; ++k) {
          row += AddItem(problem_.items[k], llm_at_[r], row, segments_[per_microbatch ? m : 0]);
        }
        row_ends_.push_back(row);
        if (per_microbatch) row = 0;
      }
    }
  }

  // The batch that an llm rank runs as its microbatch: its own, or that of the first rank of its group.
  size_t BatchOf(uint32_t rank, uint32_t microbatch) const {
    const size_t own = rank * size_t{llm_.num_microbatches} + microbatch;
    const auto groups = problem_.groups.groups;
    return groups.empty() ? own : groups[own].first * size_t{llm_.num_microbatches} + microbatch;
  }

  // Returns the item's rows.
  uint32_t AddItem(uint32_t item, uint32_t to, uint64_t to_row, std::vector<Segment>& segments) const {
    const uint32_t rows = problem_.rows[item];
    if (rows == 0) return 0;
    const uint32_t from =
        problem_.groups.shared ? to : encoder_at_[problem_.encoder_batch[item] / encoder_.num_microbatches];
    const uint64_t from_row = problem_.first_row[item];
    Segment* const last = segments.empty() ? nullptr : &segments.back();
    if (last != nullptr && last->from == from && last->to == to && last->from_row + last->rows == from_row) {
      last->rows += rows;
    } else {
      segments.push_back({from, to, from_row, to_row, rows});
    }
    return rows;
  }

  Route MakeRoute(uint32_t exchange) {
    Route route{.microbatch = exchange, .ranks = group_, .per_rank = std::vector<RankRoute>(group_.size())};
    const uint32_t microbatches = llm_.num_microbatches;
    for (RankRoute& rank : route.per_rank) rank.microbatch_offsets.resize(microbatches + 1);
    for (uint32_t r = 0; r < encoder_.ranks.size(); ++r) {
      route.per_rank[encoder_at_[r]].rows_in =
          problem_
              .encoder_batch_rows[problem_.groups.shared ? BatchOf(r, exchange)
                                                         : r * size_t{encoder_.num_microbatches} + exchange];
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
    // By receiver, then sender, so that all segments come out by peer, then in the receiver's order.
    std::vector<Segment>& segments = segments_[exchange];
    std::stable_sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
      return std::pair(a.to, a.from) < std::pair(b.to, b.from);
    });
    for (const Segment& segment : segments) {
      route.per_rank[segment.from].send.push_back({segment.to, segment.from_row, segment.rows});
      route.per_rank[segment.to].receive.push_back({segment.from, segment.to_row, segment.rows});
    }
    route.all_stay = std::all_of(segments.begin(), segments.end(),
                                 [](const Segment& segment) { return segment.from == segment.to; });
    return route;
  }

  const RouteProblem& problem_;
  const PhasePlan& encoder_;
  const PhasePlan& llm_;
  std::vector<uint32_t> group_;                 // global ranks of both phases, ascending
  std::vector<uint32_t> encoder_at_;            // [encoder ranks] index into group_
  std::vector<uint32_t> llm_at_;                // [llm ranks]
  std::vector<std::vector<Segment>> segments_;  // [exchanges]
  std::vector<uint64_t> row_ends_;              // [llm ranks * microbatches] of the rows that a rank receives
};

}  // namespace

std::vector<Route> ComposeRoutes(const RouteProblem& problem) { return RouteComposer(problem).Run(); }

}  // namespace evenkeel::reorder
