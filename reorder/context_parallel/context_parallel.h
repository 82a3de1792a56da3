// Assigns sequences to groups of ranks that share them (context parallelism) in the least time: which
// sequences run together, on how many ranks, in how many microbatches one after another.
//
// The problem is that of DHP (4.1). Groups have any degree, and a microbatch has groups for at most all
// ranks. A group splits each of its sequences evenly over its ranks and passes keys and values around a ring.
// The memory of a rank is bounded. A microbatch takes as long as its slowest group, and the times of
// microbatches add up.
// Example:
//     ContextParallelInput input{.ranks = 64, .memory_per_rank = 64e9, .memory_per_token = 1e6};
//     input.sequences = {{.tokens = 52000}, {.tokens = 900, .mask_factor = 1}};
//     EVENKEEL_ASSIGN_OR_RETURN(const ContextParallelPlan plan, PlanContextParallel(input));
//     plan.microbatches[0].groups[0].degree;
//
// Thread safety: pure functions of their input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::reorder {

struct ContextParallelSequence {
  uint32_t tokens = 0;
  // DHP's eta: 0 for a causal mask, 1 if all tokens see each other; below 0 where it is several documents.
  double mask_factor = 0;
};

// Times in any common unit, all at least 0. With S the tokens of a group of d ranks and A the sum of (1 +
// mask_factor) * tokens^2 over its sequences, the group takes
//   (attention * A + linear * S) / d + constant                                         d = 1
//   and, for d > 1, max(0, ring * S * (d - 1) / d - attention * A / d) + ring_constant more.
// This is DHP (8) with the 1/d that its text lacks, (9), and (10): attention hides the ring. Of d chunks of
// keys and values a rank receives d - 1; the paper's (9) lacks this factor. Its v_p, the bandwidth within a
// group, is that between nodes for groups with more ranks than a node: they pay ring_between_nodes instead of
// `ring`. Smaller groups are assumed to lie within a node.
struct ContextParallelCost {
  double attention = 0;           // alpha 1, per token squared
  double linear = 1;              // alpha 2, per token
  double constant = 0;            // beta 1, per group
  double ring = 0;                // alpha 3 / bandwidth, per token
  double ring_between_nodes = 0;  // 0: as `ring`; otherwise not less than it
  double ring_constant = 0;       // beta 2, per group of more than one rank
};

struct ContextParallelInput {
  uint32_t ranks = 1;
  uint32_t ranks_per_node = 0;  // 0: all on one node
  // For each rank: model states once, and tokens * memory_per_token, unlike DHP (7), which counts the states
  // once per group. memory_per_token 0: any number of tokens.
  double memory_per_rank = 0;
  double model_states = 0;
  double memory_per_token = 0;
  ContextParallelCost cost;
  bool powers_of_two = false;  // degrees must be powers of two
  // The allowed degrees, ascending, at most `ranks`, without powers_of_two; empty: all.
  std::vector<uint32_t> degrees = {};
  std::string algorithm = "regroup";
  std::vector<ContextParallelSequence> sequences;
};

struct ContextParallelGroup {
  uint32_t degree = 1;
  std::vector<uint32_t> sequences;  // ascending
  double time = 0;
};

struct ContextParallelMicrobatch {
  std::vector<ContextParallelGroup> groups;  // degrees sum up to at most the ranks; ranks may be idle
  double time = 0;                           // of the slowest group
};

struct ContextParallelPlan {
  std::vector<ContextParallelMicrobatch> microbatches;
  double time = 0;   // sum over the microbatches
  double bound = 0;  // no plan takes less
};

// InvalidArgument: no ranks or more than 2^11, an unknown algorithm, a number that is negative or not finite,
// model states that leave no room for a token, degrees that are not ascending from 1 to the ranks, or a sequence that does not
// fit on all ranks together, or into a group of the largest degree (named by its number).
absl::StatusOr<ContextParallelPlan> PlanContextParallel(const ContextParallelInput& input);

// The errors of PlanContextParallel, without a plan.
absl::Status CheckContextParallel(const ContextParallelInput& input);

// Internal: a sequence that is not in exactly one group, a group without sequences or ranks, with a degree
// that is not allowed or more tokens than its ranks hold, a microbatch with too many ranks, times that differ
// from the cost, or a time below the bound.
absl::Status ContextParallelCheck(const ContextParallelInput& input, const ContextParallelPlan& plan);

// "a, b, c", for messages.
std::string ContextParallelAlgorithmNames();

}  // namespace evenkeel::reorder
