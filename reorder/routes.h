// Composed routes: from the encoder's order straight to the llm's, without the two rearrangements one after
// the other (OrchMLLM, rearrangement composition).
//
// Not the order of anything: whoever orders the items reports them here, in the order in which the llm takes
// them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.h"

namespace evenkeel::reorder {

// The routes of one encoder phase, one per exchange.
//
//   for every llm rank, ascending, for every microbatch of it, ascending:
//     for every item of the batch: composer.Add(...);
//     composer.EndBatch(rank, microbatch);
//   composer.Finish(bucket_rows, plan.routes);
class RouteComposer {
 public:
  RouteComposer(const PhasePlan& encoder, const PhasePlan& llm);

  // An item's rows, which are rows [first_row, first_row + rows) of the output of its bucket: encoder rank *
  // encoder microbatches + encoder microbatch.
  void Add(uint32_t bucket, uint64_t first_row, uint32_t rows) {
    if (rows == 0) return;
    if (Run* last = runs_.empty() ? nullptr : &runs_.back();
        last != nullptr && bucket == last->bucket && first_row == last->from_row + last->rows) {
      last->rows += rows;
    } else {
      runs_.push_back({bucket, first_row, row_, rows});
    }
    row_ += rows;
  }
  void EndBatch(uint32_t llm_rank, uint32_t microbatch);
  // Appends the routes to the plan's. `bucket_rows`: all rows of every bucket, dummies included.
  void Finish(std::span<const uint64_t> bucket_rows, std::vector<Route>& routes);

 private:
  // Rows that follow each other on both sides.
  struct Run {
    uint32_t bucket = 0;
    uint64_t from_row = 0;
    uint64_t to_row = 0;
    uint64_t rows = 0;
  };
  // A run between members of the group; see Route::ranks.
  struct Segment {
    uint32_t from = 0;
    uint32_t to = 0;
    uint64_t from_row = 0;
    uint64_t to_row = 0;
    uint64_t rows = 0;
  };
  // Where the ranks are in the group.
  std::vector<uint32_t> PlacesOf(std::span<const uint32_t> ranks) const;
  void EndReceiver(uint32_t to, std::vector<Segment>& segments);
  void FillRoute(uint32_t exchange, std::span<const uint64_t> bucket_rows, Route& route);

  const PhasePlan& encoder_;
  const PhasePlan& llm_;
  std::vector<uint32_t> group_;       // global ranks of both phases, ascending
  std::vector<uint32_t> encoder_at_;  // [encoder ranks] index into group_
  std::vector<uint32_t> llm_at_;      // [llm ranks]
  // [exchanges] by receiver as they came, then sender, then the receiver's order
  std::vector<std::vector<Segment>> segments_;
  std::vector<uint64_t> row_ends_;  // [llm ranks * microbatches] of the rows that a rank receives
  // Of the receiver that is being reported:
  uint64_t row_ = 0;  // of the next item
  std::vector<Run> runs_;
};

}  // namespace evenkeel::reorder
