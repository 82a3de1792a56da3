// Assigns batches to nodes so that the rank that sends the most rows to other nodes sends as few as possible:
// the problem of OrchMLLM, algorithm 3, independent of what a batch is.
//
// Example:
//     std::vector<uint32_t> node = AssignBatchesToNodes(problem);
//     double ratio = static_cast<double>(LargestEgress(problem, node)) / EgressBound(problem);
//
// Thread safety: pure functions.
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
  std::vector<uint32_t> source_node;  // [sources] the node of each source; fixed
  std::vector<uint32_t> slots;  // [nodes] the number of batches that a node takes; their sum is num_batches
  uint32_t num_batches = 0;
  std::vector<Volume> volumes;  // each pair at most once, sorted by (source, batch)
};

// The node of every batch; every node gets exactly its slots. A deterministic heuristic of bounded effort.
std::vector<uint32_t> AssignBatchesToNodes(const NodeWiseProblem& problem);

// The maximum over all sources of the rows sent to other nodes.
uint64_t LargestEgress(const NodeWiseProblem& problem, const std::vector<uint32_t>& node);

// A lower bound of LargestEgress over all assignments: a source keeps at most its largest volumes, as many as
// its node has slots; and the rows that a node's sources keep together are at most those of the slots' best
// batches.
uint64_t EgressBound(const NodeWiseProblem& problem);

}  // namespace evenkeel::reorder
