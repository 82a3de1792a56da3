// Cuts every rank's samples into microbatches, the same number on every rank.
//
// Not the choice of ranks (balance.h), nor the order of the microbatches for a pipeline.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

struct SplitProblem {
  uint32_t num_ranks = 0;
  std::span<const uint32_t> rank;    // [samples]
  std::span<const uint32_t> tokens;  // [samples] aligned; none above the capacity
  std::span<const Load> cost;        // [samples] of the llm
  Batching batching = Batching::kPacked;
  // Packed: sum of a microbatch's tokens; padded: count * longest. 0: unlimited.
  uint64_t capacity_tokens = 0;
  uint32_t least_count = 1;  // of a rank's microbatches
  uint32_t count_multiple = 1;
  // Costs per sample in the encoder phases that run once per microbatch. [phases][samples]
  std::vector<std::span<const Load>> co_balanced;
  // Costs per sample, added over all phases, where ranks wait for each other at every microbatch and nothing moves
  // between them: a rank's microbatches are then numbered by it, the heaviest first, so that the heavy ones of
  // all ranks meet. [samples], or empty
  std::span<const double> met_cost;
};

struct Split {
  uint32_t num_microbatches = 1;
  std::vector<uint32_t> microbatch;  // [samples]
};

// The number of microbatches is the least multiple of count_multiple, from least_count on, with which best-fit decreasing
// (packed) or the least cut (padded) keeps the capacity on every rank. Within a rank the microbatches are alike in
// cost; over the ranks, microbatches of one index together have about as much for each co-balanced encoder as
// those of any other index, unless met_cost numbers them.
Split SplitIntoMicrobatches(const SplitProblem& problem);

// Where an encoder runs once per microbatch and its algorithm balances every exchange by itself, the rank
// that it favours among equal ones would have the heaviest item of every microbatch. So batches change places
// among the ranks of a group: the heaviest of an exchange goes to the rank that has had least in those
// before. Exchanges stay as even as they are.
class BatchesInTurn {
 public:
  // [ranks] which ranks may change places: those of the same number.
  explicit BatchesInTurn(std::vector<uint32_t> group) : group_(std::move(group)), had_(group_.size(), 0) {}
  // Renames the ranks of one exchange; [units] each.
  void Rename(Batching batching, std::span<const Load> cost, std::vector<uint32_t>& rank);

 private:
  const std::vector<uint32_t> group_;
  std::vector<Load> had_;  // [ranks]
};

// What nobody balances: each rank's samples in their order, a new microbatch where the next one does not fit.
Split FillInOrder(const SplitProblem& problem);

}  // namespace evenkeel::reorder
