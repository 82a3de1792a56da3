// Dynamic context parallelism: which groups of llm ranks may share the sequences of a microbatch.
//
// A group of n ranks begins at a multiple of n, so that the groups of a job are few: they are its pool, and each needs one
// communicator for the whole training. Ranks are those of the llm (replicas), not global ranks.
//
// Example:
//     const std::vector<uint32_t> sizes = PoolSizes(256, {.powers_of_two = true, .max_size = 256, .pool = 64});
//     // {1, 8, 16, 32, 64, 128, 256}: 63 groups of several ranks
//     const RankGroup first = PoolOf(256, sizes)[0];  // {.first = 0, .size = 8}
//
// Thread safety: pure functions and plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evenkeel {

// For how many of the next steps a rank is told its groups with a step, so that their communicators exist in time.
inline constexpr uint32_t kGroupsAhead = 8;

// Consecutive ranks of the llm.
struct RankGroup {
  uint32_t first = 0;
  uint32_t size = 1;

  friend bool operator==(const RankGroup&, const RankGroup&) = default;
  friend auto operator<=>(const RankGroup&, const RankGroup&) = default;
};

// What the job says about dynamic groups (topology.groups). `sizes` follows from the keys before it.
struct GroupSpec {
  bool given = false;  // topology.context_parallel is dynamic
  bool powers_of_two = false;
  uint32_t max_size = 0;  // ranks of the largest group
  uint32_t pool = 64;     // groups of more than one rank, at most
  uint64_t tokens_per_rank = 0;
  std::string algorithm = "regroup";  // reorder/ has the algorithms
  double ring = 0;                    // time per token, in the unit of the llm's cost
  double ring_between_nodes = 0;      // 0: as `ring`
  double ring_constant = 0;           // per group of more than one rank
  bool media_attend_fully = false;    // tokens of an image or video see each other in both directions
  std::vector<uint32_t> sizes;        // ascending, from 1 on

  uint64_t LargestTokens() const { return uint64_t{max_size} * tokens_per_rank; }
};

// The sizes of the groups: 1; `max_size`; then powers of two, largest first; then, unless powers_of_two, three times a power
// of two, largest first, and all others, smallest first: each that the pool still has room for. Ascending.
std::vector<uint32_t> PoolSizes(uint32_t ranks, const GroupSpec& spec);

// All groups of more than one rank, by size, then first rank.
std::vector<RankGroup> PoolOf(uint32_t ranks, const std::vector<uint32_t>& sizes);

}  // namespace evenkeel
