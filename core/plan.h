// The plan of one step: which rank computes what, in which microbatch, at which position, and the routes
// along which encoder outputs travel to the llm. A pure function of (index, job, step).
//
// Ranks in a plan are ranks of the phase (0..n-1); `PhasePlan::ranks` maps them to global ranks.
// Thread safety: a plain value; safe to read from many threads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/context_groups.h"
#include "core/job.h"
#include "core/words.h"

namespace evenkeel {

// Where a sample (llm) or an item (encoders) is computed.
struct Place {
  uint32_t rank = 0;        // of the phase
  uint32_t microbatch = 0;  // encoders that run once per step: 0
  uint32_t position = 0;    // within (rank, microbatch), from 0 without gaps

  friend bool operator==(const Place&, const Place&) = default;
  friend auto operator<=>(const Place&, const Place&) = default;
};

inline constexpr uint32_t kDummy = 0xffffffffu;  // PlannedItem::sample of an item that stands for nothing

// The sample at the same place in StepSamples.
struct PlannedSample {
  uint32_t llm_length = 0;  // aligned
  uint32_t loss_tokens = 0;
  uint32_t first_item = 0;  // into Plan::items, in the order of their placeholders
  uint32_t num_items = 0;   // an item that several phases encode counts for each
  Place place;
};

struct PlannedItem {
  uint32_t sample = 0;   // into Plan::samples, or kDummy (a masked, all-zero item of the smallest size)
  uint32_t ordinal = 0;  // position among the sample's media; phases that encode one item have the same
  Medium medium = Medium::kImage;
  uint8_t tower = 0;  // SampleItem::tower
  uint8_t phase = 0;  // into Plan::phases
  ItemLengths lengths;
  Place place;  // within (rank, microbatch): images, then videos, then audio
};

// What a phase does in the step.
struct PhasePlan {
  Phase phase = Phase::kLlm;
  std::vector<uint32_t> ranks;    // global rank of each replica
  uint32_t num_microbatches = 1;  // 1 where an encoder runs once per step; else Plan::num_microbatches
  // Units (indices into Plan::samples for the llm, into Plan::items otherwise) sorted by place.
  std::vector<uint32_t> order;
  // order[begin[rank * num_microbatches + microbatch] .. begin[... + 1]) is the batch of that rank and
  // microbatch.
  std::vector<uint32_t> begin;
  // Cost per rank under the job's cost and batching. load_before: with samples in order and each item on the
  // rank of its sample. load_after: as planned.
  std::vector<double> load_before;
  std::vector<double> load_after;
  std::vector<uint64_t> tokens_before;  // per rank: llm tokens, or encoder cost_length
  std::vector<uint64_t> tokens_after;
};

// A run of consecutive rows that one rank sends to, or receives from, a peer.
struct RouteSegment {
  uint32_t peer = 0;  // index into Route::ranks
  uint64_t row = 0;   // first row in the local encoder output (send) or in the local llm order (receive)
  uint64_t rows = 0;

  friend bool operator==(const RouteSegment&, const RouteSegment&) = default;
};

// One rank's side of a route.
struct RankRoute {
  // In the order of the send buffer: by peer, then by the receiver's order.
  std::vector<RouteSegment> send;
  // In the order of the receive buffer: by peer, then by the local llm order. For every pair of ranks the
  // sender's segments and the receiver's are the same in number, order and rows.
  std::vector<RouteSegment> receive;
  uint64_t rows_in = 0;   // rows of the local encoder output, dummies included
  uint64_t rows_out = 0;  // rows the local llm part takes
  // rows of llm microbatch i are [microbatch_offsets[i], microbatch_offsets[i+1]) of rows_out; always
  // Plan::num_microbatches + 1 of them. The exchange of microbatch i holds the rows of that one: the others
  // are empty.
  std::vector<uint64_t> microbatch_offsets;
};

// The all-to-all between an encoder phase and the llm.
//
// Rows count `output_rows`. The local encoder output holds the items of the rank by position, each with its
// output_rows. The local llm order is: by microbatch, then sample position, then the item's ordinal.
struct Route {
  Phase from;
  Phase to = Phase::kLlm;
  uint32_t microbatch = 0;          // which exchange; 0 where the encoder runs once per step
  std::vector<uint32_t> ranks;      // global ranks of both phases, ascending: the group of the exchange
  std::vector<RankRoute> per_rank;  // parallel to `ranks`
  bool all_stay = false;            // no row leaves its rank, so that no rank needs the exchange
};

struct Plan {
  uint64_t step = 0;
  uint32_t num_microbatches = 1;       // of the llm; the same on every rank
  uint64_t loss_tokens = 0;            // of the whole step
  std::vector<PlannedSample> samples;  // in the sampler's order: parallel to StepSamples::refs
  std::vector<PlannedItem> items;      // samples' items first, in order; then dummies
  std::vector<PhasePlan> phases;       // in the order of the job's phases
  std::vector<Route> routes;           // by phase, then microbatch
  // [llm ranks * num_microbatches] With dynamic context parallelism, the group in which a rank runs a microbatch; else
  // empty. The samples of a group are placed on its first rank, and the batches of its other ranks are empty.
  std::vector<RankGroup> groups = {};

  const PhasePlan* phase(const Phase& phase) const;
  const Route* route(const Phase& from, uint32_t microbatch) const;
  // The llm rank whose batch `rank` runs: the first of its group.
  uint32_t FirstOfGroup(uint32_t rank, uint32_t microbatch) const {
    return groups.empty() ? rank : groups[rank * size_t{num_microbatches} + microbatch].first;
  }
};

// A part of a text that is cut: some of its tokens, from one on.
struct Piece {
  uint32_t begin = 0;        // token
  uint32_t text_tokens = 0;  // of the whole text
};

// Samples of a step, as the sampler chose them and the index knows them.
struct StepSamples {
  uint64_t step = 0;
  std::vector<SampleRef> refs;
  std::vector<SampleLengths> lengths;  // parallel to refs
  // Where the job packs or cuts chunks, which are bins too: [bins + 1] the begin of every bin in `refs`; a bin is one
  // microbatch of one llm rank. Else empty.
  std::vector<uint32_t> bin_begin = {};
  // Where the job cuts chunks, parallel to refs: the piece that each is, whose lengths are those above. Else empty.
  std::vector<Piece> pieces = {};
};

}  // namespace evenkeel
