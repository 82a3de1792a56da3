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
//   for every item: composer.Add(...);   // those of a batch of the llm in its order, batches as they come
//   composer.Finish(bucket_rows, plan.routes);
class RouteComposer {
 public:
  RouteComposer(const PhasePlan& encoder, const PhasePlan& llm);

  // An item's rows, which are the next of `batch` of the llm, rank * microbatches + microbatch, and rows
  // [first_row, first_row + rows) of the output of its bucket: encoder rank * encoder microbatches + encoder
  // microbatch.
  void Add(uint32_t batch, uint32_t bucket, uint64_t first_row, uint32_t rows) {
    if (rows == 0) return;
    Batch& to = batches_[batch];
    if (bucket != to.last_bucket || first_row != to.next_row) {
      runs_.push_back({batch, bucket, first_row, to.rows});
      to.last_bucket = bucket;
      ++to.runs;
    }
    to.next_row = first_row + rows;
    to.rows += rows;
  }
  // Appends the routes to the plan's. `bucket_rows`: all rows of every bucket, dummies included.
  void Finish(std::span<const uint64_t> bucket_rows, std::vector<Route>& routes);

 private:
  static constexpr uint32_t kNone = 0xffffffffu;

  // What a batch of the llm has so far.
  struct Batch {
    uint64_t rows = 0;
    uint64_t next_row = 0;  // behind the last item's, in its bucket's output
    uint32_t last_bucket = kNone;
    uint32_t runs = 0;
  };
  // Rows that follow each other on both sides, up to where the batch's next run begins.
  struct Run {
    uint32_t batch = 0;
    uint32_t bucket = 0;
    uint64_t from_row = 0;
    uint64_t to_row = 0;
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
  std::vector<Run> RunsByBatch() const;
  void FillSegments();
  void EndReceiver(std::vector<Segment>& segments);
  void FillRoute(uint32_t exchange, std::span<const uint64_t> bucket_rows, Route& route);

  const PhasePlan& encoder_;
  const PhasePlan& llm_;
  std::vector<uint32_t> group_;       // global ranks of both phases, ascending
  std::vector<uint32_t> encoder_at_;  // [encoder ranks] index into group_
  std::vector<uint32_t> llm_at_;      // [llm ranks]
  // [exchanges] by receiver as they came, then sender, then the receiver's order
  std::vector<std::vector<Segment>> segments_;
  std::vector<uint64_t> row_ends_;  // [llm ranks * microbatches] of the rows that a rank receives
  std::vector<Batch> batches_;
  std::vector<Run> runs_;          // those of a batch in their order
  std::vector<Segment> received_;  // by the rank that is being looked at, `from` being the bucket
};

}  // namespace evenkeel::reorder
