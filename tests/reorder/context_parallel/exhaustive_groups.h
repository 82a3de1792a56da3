// Context parallelism of few sequences, by trying everything, and sequences to try it on: for tests and
// benchmarks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "reorder/context_parallel/context_parallel.h"
#include "reorder/context_parallel/context_parallel_problem.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {

// Lengths of a long tail, `fill` of what all ranks hold at once.
inline ContextParallelInput DrawLongTail(uint64_t seed, uint32_t ranks, size_t count, double ring,
                                         double fill) {
  Random random(seed);
  ContextParallelInput input{.ranks = ranks, .memory_per_token = 1};
  double total = 0, longest = 0;
  for (size_t s = 0; s < count; ++s) {
    const uint32_t tokens = random.Length(8.5, 1.2, 64, 200000);
    input.sequences.push_back({.tokens = tokens, .mask_factor = random.Below(3) == 0 ? random.Uniform() : 0});
    total += tokens, longest = std::max<double>(longest, tokens);
  }
  input.memory_per_rank = std::max(longest * 1.05, total / fill) / ranks;
  input.cost = {.attention = 1.0 / 4096, .linear = 1, .constant = 20, .ring = ring, .ring_constant = 30};
  return input;
}

// The least time of all partitions into groups, of those into microbatches, and of all degrees.
inline double ExhaustiveGroups(const ContextParallelInput& input) {
  ContextParallelProblem problem{.ranks = input.ranks,
                                 .tokens_per_rank = static_cast<uint64_t>(input.memory_per_rank),
                                 .constant = input.cost.constant,
                                 .ring_constant = input.cost.ring_constant};
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const size_t sets = size_t{1} << input.sequences.size();
  std::vector<GroupLoad> load(sets);
  for (size_t set = 1; set < sets; ++set) {
    for (size_t s = 0; s < input.sequences.size(); ++s) {
      if ((set >> s & 1) == 0) continue;
      const double tokens = input.sequences[s].tokens;
      load[set].Add({input.cost.attention * (1 + input.sequences[s].mask_factor) * tokens * tokens,
                     input.cost.linear * tokens, input.cost.ring * tokens, input.sequences[s].tokens});
    }
  }
  // one[set][n]: as one microbatch on n ranks; all[set]: in any number of them.
  std::vector<std::vector<double>> one(sets, std::vector<double>(input.ranks + 1, kNever));
  std::vector<double> all(sets, kNever);
  one[0].assign(input.ranks + 1, 0), all[0] = 0;
  for (size_t set = 1; set < sets; ++set) {
    for (size_t group = set; group > 0; group = (group - 1) & set) {
      if ((group & set & -set) == 0) continue;
      for (uint32_t d = problem.LeastDegree(load[group].tokens); d <= input.ranks; ++d) {
        for (uint32_t n = d; n <= input.ranks; ++n) {
          one[set][n] =
              std::min(one[set][n], std::max(problem.Time(load[group], d), one[set ^ group][n - d]));
        }
      }
    }
  }
  for (size_t set = 1; set < sets; ++set) {
    for (size_t first = set; first > 0; first = (first - 1) & set) {
      all[set] = std::min(all[set], one[first][input.ranks] + all[set ^ first]);
    }
  }
  return all[sets - 1];
}

}  // namespace evenkeel::reorder
