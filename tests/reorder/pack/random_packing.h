// Random packing and context-parallel problems, small and nasty, from any source of numbers: shared by
// property tests and fuzzers. Below and DrawLength are those of random_problem.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "reorder/context_parallel/context_parallel.h"
#include "reorder/pack/pack.h"
#include "tests/reorder/random_problem.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {

inline PackInput DrawPackInput(const Below& below, std::span<const Phase> phases = kUsualPhases) {
  static const char* const kAlgorithms[] = {"even_fill", "omnibal", "best_fit_decreasing"};
  PackInput input;
  input.algorithm = kAlgorithms[below(2) == 0 ? 0 : below(3)];
  input.devices = 1 + static_cast<uint32_t>(below(6));
  input.seed = below(1000);
  input.iterations = static_cast<uint32_t>(below(4));
  const uint64_t samples = below(below(3) == 0 ? 4 : 80);
  for (const Phase& phase : phases) {
    if (phase != Phase::kLlm && below(2) == 0) continue;
    PackPhase& drawn = input.phases.emplace_back();
    drawn.phase = phase;
    const uint64_t kind = below(6);
    uint64_t longest = 0;
    for (uint64_t s = 0; s < samples; ++s) {
      drawn.lengths.push_back(below(5) == 0 ? 0 : DrawLength(below, kind));
      longest = std::max<uint64_t>(longest, drawn.lengths.back());
    }
    // From the data, tight, roomy, or rarely too small for the longest.
    if (below(3) > 0) drawn.capacity = longest + below(3) * below(longest + 2);
    if (below(40) == 0) drawn.capacity = longest - std::min<uint64_t>(longest, 1);
    if (below(3) == 0) drawn.target = below(longest + 1);
  }
  return input;
}

inline ContextParallelInput DrawContextParallelInput(const Below& below) {
  static const char* const kAlgorithms[] = {"regroup", "dhp", "static", "static_power_of_two"};
  ContextParallelInput input;
  input.algorithm = kAlgorithms[below(2) == 0 ? 0 : below(4)];
  input.powers_of_two = below(3) == 0;
  input.ranks = 1 + static_cast<uint32_t>(below(below(3) == 0 ? 3 : 20));
  const uint64_t samples = below(below(3) == 0 ? 4 : 40);
  const uint64_t kind = below(6);
  uint64_t longest = 1;
  for (uint64_t s = 0; s < samples; ++s) {
    input.sequences.push_back({.tokens = DrawLength(below, kind), .mask_factor = 0.25 * below(5)});
    longest = std::max<uint64_t>(longest, input.sequences.back().tokens);
  }
  if (below(4) > 0) {
    input.memory_per_token = below(2) == 0 ? 1 : 3;
    input.model_states = static_cast<double>(below(100));
    // A rank holds anything from a share of the longest sequence to several of it.
    const uint64_t tokens = longest / input.ranks + below(2) * below(2 * longest) + below(20);
    input.memory_per_rank = input.model_states + input.memory_per_token * static_cast<double>(tokens);
  }
  input.cost = {.attention = below(3) == 0 ? 0 : 1.0 / static_cast<double>(1 + below(10000)),
                .linear = static_cast<double>(below(3)),
                .constant = static_cast<double>(below(2) * below(1000)),
                .ring = 0.25 * static_cast<double>(below(8)),
                .ring_constant = static_cast<double>(below(2) * below(1000))};
  return input;
}

}  // namespace evenkeel::reorder
