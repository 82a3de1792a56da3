// Megatron-Core's hybrid context parallelism: every sequence has its own degree, by its length.
//
// A description of another system's method for comparison; no planner of ours calls it.
//
// Example:
//     for (const HybridRound& round : HybridRounds(tokens, /*ranks=*/64, /*tokens_per_rank=*/8192)) {
//       round.front().sequences;  // run one after another on ranks first_rank to first_rank + degree - 1
//     }
//
// Source: BalancedCPScheduler of megatron-core 0.16.1 (pipeline_parallel/hybrid_cp_schedule.py). Its rule:
// - A sequence needs the smallest power of two of ranks that hold it, and takes n^2 / ranks there.
// - The sequences, longest first, are cut into as many buckets of equal work as there are degrees. The next one is the head
//   of the first bucket that has room: a group of its degree, or free ranks for a new group. It goes to a new group, else to
//   the group of its degree with the least work.
// - Once a sequence needs fewer ranks than the first of the round, the round ends as soon as all ranks are within 5 % of
//   the busiest. It also ends when nothing has room. Then the busiest rank gives back its last sequence while that levels.
// - Free ranks are used up: the first of the smallest groups doubles, and the others move up.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::advise {

struct HybridGroup {
  uint32_t first_rank = 0;
  uint32_t degree = 1;
  std::vector<uint32_t> sequences;  // in the order in which they run
};
using HybridRound = std::vector<HybridGroup>;  // all ranks meet at its end

// The smallest power of two of ranks that hold the sequence; 0: not even kMaxHybridRanks do.
inline constexpr uint32_t kMaxHybridRanks = 1u << 20;
uint32_t HybridDegree(uint32_t tokens, double tokens_per_rank);

// Precondition: the degree of every sequence is at most `ranks`, and not 0. Ranks stay free where the number of ranks is no
// power of two and the last groups cannot double.
std::vector<HybridRound> HybridRounds(std::span<const uint32_t> tokens, uint32_t ranks,
                                      double tokens_per_rank);

}  // namespace evenkeel::advise
