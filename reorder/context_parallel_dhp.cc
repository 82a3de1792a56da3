// Dynamic hybrid parallelism: DHP, section 4.3. Microbatches; in each, memory-aware sequence packing by
// best-fit decreasing; then algorithm 1, the two-dimensional dynamic programme over degrees.
//
// Where the text does not hold, or leaves something open:
// - It hands over microbatches that fit and does not say how the batch is chunked. Here a microbatch takes
//   sequences in the order of the batch while their groups' least degrees add up to at most the ranks.
// - Algorithm 1 backtracks from [K'+1][N+1], one past the end of its table, and from all N ranks, though (6)
// says
//   at most N and a group may be slower on more ranks: here from the best entry of row K'.
// - The 1/d that (8) lacks and the model states of (7): see context_parallel.h.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "reorder/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

// Stage 1: each of `sequences`, which come longest first, to the group with least memory left of those where
// it fits; else it opens one with the least degree that holds it.
Microbatch PackSequences(const ContextParallelProblem& problem, std::span<const uint32_t> sequences) {
  Microbatch groups;
  std::vector<std::pair<uint64_t, uint32_t>> rooms;  // of the groups, least first
  uint64_t ranks = 0;
  for (uint32_t sequence : sequences) {
    const uint64_t tokens = problem.sequences[sequence].tokens;
    std::pair<uint64_t, uint32_t> room;
    const auto fits = std::lower_bound(rooms.begin(), rooms.end(), std::pair(tokens, 0u));
    if (fits != rooms.end()) {
      room = *fits;
      rooms.erase(fits);
    } else {
      const uint32_t degree = problem.LeastDegree(tokens);
      ranks += degree;
      room = {degree * problem.tokens_per_rank, static_cast<uint32_t>(groups.size())};
      groups.push_back({.degree = degree});
      if (ranks > problem.ranks) break;
    }
    groups[room.second].Put(problem, sequence);
    room.first -= tokens;
    rooms.insert(std::lower_bound(rooms.begin(), rooms.end(), room), room);
  }
  return groups;
}

// Sequences [begin, end) of the batch, packed. `place`: of every sequence, among all, longest first.
Microbatch PackChunk(const ContextParallelProblem& problem, const std::vector<uint32_t>& place,
                     uint32_t begin, uint32_t end) {
  std::vector<uint32_t> sequences(end - begin);
  std::iota(sequences.begin(), sequences.end(), begin);
  std::sort(sequences.begin(), sequences.end(), [&](uint32_t a, uint32_t b) { return place[a] < place[b]; });
  return PackSequences(problem, sequences);
}

// The first of the sequences from `begin` with which all ranks together are full.
uint32_t FirstTooMany(const ContextParallelProblem& problem, uint32_t begin) {
  uint64_t room = problem.ranks * problem.tokens_per_rank;
  uint32_t s = begin;
  for (; s < problem.sequences.size() && problem.sequences[s].tokens <= room; ++s) {
    room -= problem.sequences[s].tokens;
  }
  return s;
}

}  // namespace

// Stage 2: algorithm 1.
void AllocateRanks(const ContextParallelProblem& problem, Microbatch& microbatch) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t groups = microbatch.size(), width = problem.ranks + 1;
  std::vector<double> dp((groups + 1) * width, kInfinity);
  std::vector<uint32_t> path((groups + 1) * width, 0), least(groups + 1, 0);
  uint64_t remaining = 0;
  for (size_t k = 1; k <= groups; ++k) {
    least[k] = problem.LeastDegree(microbatch[k - 1].load.tokens);
    remaining += least[k];
  }
  dp[0] = 0;
  uint64_t before = 0;  // least degrees of groups 1 to k - 1
  for (size_t k = 1; k <= groups; ++k) {
    remaining -= least[k];
    for (uint64_t d = least[k]; before + d + remaining <= problem.ranks;
         d = problem.NextDegree(static_cast<uint32_t>(d))) {
      const double time = problem.Time(microbatch[k - 1].load, static_cast<uint32_t>(d));
      for (uint64_t j = before + d; j + remaining <= problem.ranks; ++j) {
        const double cost = std::max(dp[(k - 1) * width + j - d], time);
        if (cost < dp[k * width + j]) {
          dp[k * width + j] = cost;
          path[k * width + j] = static_cast<uint32_t>(d);
        }
      }
    }
    before += least[k];
  }
  const auto last_row = dp.begin() + static_cast<ptrdiff_t>(groups * width);
  size_t q = static_cast<size_t>(std::min_element(last_row, dp.end()) - last_row);
  for (size_t p = groups; p > 0; --p) {
    microbatch[p - 1].degree = path[p * width + q];
    q -= microbatch[p - 1].degree;
  }
}

std::vector<Microbatch> Dhp(const ContextParallelProblem& problem) {
  const std::vector<uint32_t> longest_first = LongestSequencesFirst(problem);
  const uint32_t count = static_cast<uint32_t>(problem.sequences.size());
  std::vector<uint32_t> place(count);
  for (uint32_t i = 0; i < count; ++i) place[longest_first[i]] = i;
  std::vector<Microbatch> microbatches;
  for (uint32_t begin = 0; begin < count;) {
    // The longest chunk that fits, by bisection; a single sequence always does.
    const uint32_t most = std::max(begin + 1, FirstTooMany(problem, begin));
    uint32_t fits = begin + 1, fits_not = most + 1;
    Microbatch chunk = PackChunk(problem, place, begin, fits);
    while (fits + 1 < fits_not) {
      // All that could fit first.
      const uint32_t end = fits_not == most + 1 ? most : fits + (fits_not - fits) / 2;
      Microbatch candidate = PackChunk(problem, place, begin, end);
      if (RanksOf(candidate) <= problem.ranks) {
        fits = end, chunk = std::move(candidate);
      } else {
        fits_not = end;
      }
    }
    AllocateRanks(problem, chunk);
    microbatches.push_back(std::move(chunk));
    begin = fits;
  }
  return microbatches;
}

}  // namespace evenkeel::reorder
