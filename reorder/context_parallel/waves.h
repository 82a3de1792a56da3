// The plan of a step with dynamic context parallelism: waves, one after the other, in each of which every rank is in exactly
// one group, and groups begin at multiples of their size.
//
// The algorithms of context_parallel.h choose sequences and degrees; here groups get their ranks. What finds no aligned place
// takes a smaller degree that holds it, else a wave of its own.
//
// Example:
//     ContextParallelInput input{.ranks = 4, .memory_per_rank = 100, .memory_per_token = 1};
//     input.cost.ring = 1;
//     input.degrees = {1, 2, 4};
//     input.sequences = {{.tokens = 180}, {.tokens = 60}};
//     EVENKEEL_ASSIGN_OR_RETURN(const std::vector<Wave> waves, PlanWaves(input));
//     const PlacedGroup& first = waves[0][0];  // {.ranks = {.first = 0, .size = 2}, .sequences = {0}}
//
// Thread safety: a pure function of its input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/context_groups.h"
#include "reorder/context_parallel/context_parallel.h"

namespace evenkeel::reorder {

struct PlacedGroup {
  RankGroup ranks;
  std::vector<uint32_t> sequences;  // ascending; empty: the rank has nothing to do
};
using Wave = std::vector<PlacedGroup>;  // by first rank; together all ranks

// The algorithm that has the same groups in all waves of a step, which need not wait for each other.
inline constexpr std::string_view kPersistent = "persistent";

// `input.degrees` are the sizes of the pool, with 1; its algorithm is one of context_parallel.h or kPersistent. At least one
// wave. Errors of PlanContextParallel.
absl::StatusOr<std::vector<Wave>> PlanWaves(const ContextParallelInput& input);

// "a, b, c", for messages.
std::string WaveAlgorithmNames();

// What PlanWaves makes for kPersistent, of a valid input.
std::vector<Wave> PersistentWaves(const ContextParallelInput& input);

// The time of all waves, by the cost of `input`, if all groups of a wave wait for each other.
double TimeOfWaves(const ContextParallelInput& input, const std::vector<Wave>& waves);

}  // namespace evenkeel::reorder
