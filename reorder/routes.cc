// Composed routes: from the encoder's order straight to the llm's, without the two rearrangements one after
// the other (OrchMLLM, rearrangement composition).
#include <algorithm>

#include "reorder/units.h"

namespace evenkeel::reorder {
namespace {

// One item's rows on their way.
struct Piece {
  uint32_t from;  // index into Route::ranks
  uint64_t from_row;
  uint64_t to_row;
  uint64_t rows;
};

class Composer {
 public:
  Composer(const EncoderUnits& units, const PhasePlan& encoder, const PhasePlan& llm, Plan& plan)
      : units_(units), encoder_(encoder), llm_(llm), plan_(plan) {
    group_ = encoder.ranks;
    group_.insert(group_.end(), llm.ranks.begin(), llm.ranks.end());
    std::sort(group_.begin(), group_.end());
    group_.erase(std::unique(group_.begin(), group_.end()), group_.end());
    for (uint32_t global : encoder.ranks) encoder_at_.push_back(At(global));
    llm_of_.assign(group_.size(), kNowhere);
    for (uint32_t r = 0; r < llm.ranks.size(); ++r) llm_of_[At(llm.ranks[r])] = r;
  }

  void Run() {
    for (uint32_t exchange = 0; exchange < encoder_.num_microbatches; ++exchange) {
      Route& route = plan_.routes.emplace_back();
      route.from = encoder_.phase;
      route.to = Phase::kLlm;
      route.microbatch = exchange;
      route.ranks = group_;
      route.per_rank.resize(group_.size());
      for (uint32_t r = 0; r < encoder_.ranks.size(); ++r) {
        route.per_rank[encoder_at_[r]].rows_in =
            units_.bucket_rows[r * size_t{encoder_.num_microbatches} + exchange];
      }
      for (uint32_t to = 0; to < group_.size(); ++to) LayOutReceiver(exchange, to, route);
    }
  }

 private:
  uint32_t At(uint32_t global) const {
    return static_cast<uint32_t>(std::lower_bound(group_.begin(), group_.end(), global) - group_.begin());
  }

  // Receivers in ascending order, so that every sender's segments come out by peer, then in the receiver's
  // order.
  void LayOutReceiver(uint32_t exchange, uint32_t to, Route& route) {
    const uint32_t microbatches = llm_.num_microbatches;
    RankRoute& mine = route.per_rank[to];
    mine.microbatch_offsets.assign(microbatches + 1, 0);
    if (llm_of_[to] == kNowhere) return;
    pieces_.clear();
    bool sorted = true;
    uint64_t row = 0;
    for (uint32_t m = 0; m < microbatches; ++m) {
      if (encoder_.num_microbatches == 1 || m == exchange) {
        const size_t bucket = llm_of_[to] * size_t{microbatches} + m;
        for (uint32_t i = units_.outgoing_begin[bucket]; i < units_.outgoing_begin[bucket + 1]; ++i) {
          sorted &= AddPiece(units_.outgoing[i], row);
        }
      }
      mine.microbatch_offsets[m + 1] = row;
    }
    mine.rows_out = row;
    if (!sorted) {
      std::stable_sort(pieces_.begin(), pieces_.end(),
                       [](const Piece& a, const Piece& b) { return a.from < b.from; });
    }
    AddSegments(to, route);
  }

  // False where the piece is out of the order of senders.
  bool AddPiece(const EncoderUnits::Outgoing& item, uint64_t& row) {
    if (item.rows == 0) return true;
    const uint32_t from = encoder_at_[item.bucket / encoder_.num_microbatches];
    const bool sorted = pieces_.empty() || pieces_.back().from <= from;
    pieces_.push_back({from, item.first_row, row, item.rows});
    row += item.rows;
    return sorted;
  }

  // Pieces that follow each other on both sides become one segment.
  void AddSegments(uint32_t to, Route& route) {
    std::vector<RouteSegment>& receive = route.per_rank[to].receive;
    for (size_t i = 0; i < pieces_.size();) {
      Piece run = pieces_[i++];
      while (i < pieces_.size() && pieces_[i].from == run.from &&
             pieces_[i].from_row == run.from_row + run.rows && pieces_[i].to_row == run.to_row + run.rows) {
        run.rows += pieces_[i++].rows;
      }
      receive.push_back({run.from, run.to_row, run.rows});
      route.per_rank[run.from].send.push_back({to, run.from_row, run.rows});
    }
  }

  const EncoderUnits& units_;
  const PhasePlan& encoder_;
  const PhasePlan& llm_;
  Plan& plan_;
  std::vector<uint32_t> group_;       // global ranks of both phases, ascending
  std::vector<uint32_t> encoder_at_;  // [encoder ranks] index into group_
  std::vector<uint32_t> llm_of_;      // [group] llm rank or kNowhere
  std::vector<Piece> pieces_;
};

}  // namespace

void ComposeRoutes(const EncoderUnits& units, const PhasePlan& encoder, const PhasePlan& llm, Plan& plan) {
  Composer(units, encoder, llm, plan).Run();
}

}  // namespace evenkeel::reorder
