// Which node each batch goes to, so that the busiest rank sends as little as can be to other nodes: the
// problem of OrchMLLM, algorithm 3, apart from what a batch is.
//
//   NodeWiseProblem problem = ...;
//   std::vector<uint32_t> node = AssignBatchesToNodes(problem);
//   LargestEgress(problem, node) <= EgressBound(problem) * 1.1
//
// Pure functions; no state.
#pragma once

#include <cstdint>
#include <vector>

namespace evenkeel::reorder {

struct NodeWiseProblem {
  struct Volume {
    uint32_t source;  // the rank that holds the rows
    uint32_t batch;   // the batch they belong to
    uint64_t rows;
  };
  std::vector<uint32_t> source_node;  // [sources] where each source is; fixed
  std::vector<uint32_t> slots;  // [nodes] how many batches a node takes; as many in all as there are batches
  uint32_t num_batches = 0;
  std::vector<Volume> volumes;  // each pair once, sorted by (source, batch)
};

// The node of every batch; a node gets exactly its slots. A heuristic of bounded effort, deterministic.
std::vector<uint32_t> AssignBatchesToNodes(const NodeWiseProblem& problem);

// Rows that the source with the most sends to other nodes.
uint64_t LargestEgress(const NodeWiseProblem& problem, const std::vector<uint32_t>& node);

// No assignment has less: a source keeps at most its largest volumes, as many as its node has slots; and the
// rows that a node's sources keep together are at most those of the slots' best batches.
uint64_t EgressBound(const NodeWiseProblem& problem);

}  // namespace evenkeel::reorder
