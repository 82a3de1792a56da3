// The ranks of every phase of a job, the nodes they are on, and which ranks of two phases are neighbours.
//
// Not the placement of anything: only where things could be. Nodes are numbered densely, 0..num_nodes-1, in
// ascending order of the job's own numbers, and mean the same in all phases.
//
// Thread safety: plain values; needs none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"

namespace evenkeel::reorder {

inline constexpr uint32_t kNowhere = 0xffffffffu;  // no such rank, no such node

// The replicas of one phase.
struct PhaseRanks {
  std::vector<uint32_t> global;         // [num_ranks] global rank
  std::vector<uint32_t> node;           // [num_ranks] dense node
  std::vector<uint32_t> on_node;        // ranks sorted by (node, rank)
  std::vector<uint32_t> on_node_begin;  // [num_nodes + 1]

  uint32_t size() const { return static_cast<uint32_t>(global.size()); }
  std::span<const uint32_t> OnNode(uint32_t n) const {
    return {on_node.data() + on_node_begin[n], on_node.data() + on_node_begin[n + 1]};
  }
};

// Where the ranks of an encoder phase lie as seen from the llm; all indexed by llm rank.
struct Neighbours {
  std::vector<uint32_t> rank;  // the encoder rank on the same global rank, or kNowhere
  std::vector<uint32_t> node;  // the llm rank's node where the encoder has ranks there, else kNowhere
  // The encoder rank that takes its items where nothing is balanced; never kNowhere.
  std::vector<uint32_t> default_rank;
  // Every node has as many encoder ranks per llm rank as any other, and at least one: a placement of samples
  // can balance the encoder, too.
  bool can_be_co_balanced = false;
};

struct Layout {
  const PhaseSpec* llm = nullptr;
  PhaseRanks llm_ranks;
  uint32_t num_nodes = 0;
  std::vector<const PhaseSpec*> encoders;  // in the order of the job
  std::vector<PhaseRanks> encoder_ranks;   // parallel to `encoders`
  std::vector<Neighbours> neighbours;      // parallel to `encoders`
};

// Of any number of encoder phases; `job.phases` is not read. The phases must outlive the layout.
// InvalidArgument: a phase without ranks or with the same rank twice, an unknown algorithm.
absl::StatusOr<Layout> MakeLayout(const Job& job, const PhaseSpec& llm,
                                  std::vector<const PhaseSpec*> encoders);

}  // namespace evenkeel::reorder
