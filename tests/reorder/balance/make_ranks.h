// Ranks of a phase for tests that drive one algorithm. Pure function.
#pragma once

#include <cstdint>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

// Global ranks 0 .. count-1, `per_node` of them on every node but perhaps the last.
inline PhaseRanks MakeRanks(uint32_t count, uint32_t per_node) {
  PhaseRanks ranks;
  ranks.on_node_begin.push_back(0);
  for (uint32_t r = 0; r < count; ++r) {
    ranks.global.push_back(r);
    ranks.node.push_back(r / per_node);
    ranks.on_node.push_back(r);
    if ((r + 1) % per_node == 0 || r + 1 == count) ranks.on_node_begin.push_back(r + 1);
  }
  return ranks;
}

// An encoder on the very ranks of the llm: items are at home on the llm rank of their sample.
inline Neighbours MakeNeighbours(const PhaseRanks& ranks) {
  Neighbours neighbours{.node = ranks.node, .can_be_co_balanced = true};
  for (uint32_t r = 0; r < ranks.size(); ++r) neighbours.rank.push_back(r);
  neighbours.default_rank = neighbours.rank;
  return neighbours;
}

}  // namespace evenkeel::reorder
