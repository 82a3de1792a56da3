// A context-parallel problem for the algorithms, which have one file each, and what they share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reorder/context_parallel/context_parallel.h"

namespace evenkeel::reorder {

// The quantities that decide a group's time and memory.
struct GroupLoad {
  double attention = 0;  // time on one rank
  double linear = 0;     // the same
  double ring = 0;       // time for all chunks to pass around the ring, between nodes
  uint64_t tokens = 0;

  double Work() const { return attention + linear; }
  void Add(const GroupLoad& other) {
    attention += other.attention;
    linear += other.linear;
    ring += other.ring;
    tokens += other.tokens;
  }
  // Subtracts a part of it.
  void Take(const GroupLoad& other) {
    attention -= other.attention;
    linear -= other.linear;
    ring -= other.ring;
    tokens -= other.tokens;
  }
};

struct ContextParallelProblem {
  uint32_t ranks = 1;
  uint64_t tokens_per_rank = 0;  // of one rank; a group of d ranks holds d times as many
  bool powers_of_two = false;
  // [ranks + 2] From each number on, the least allowed degree, above `ranks` if there is none; empty: all are allowed.
  std::vector<uint32_t> at_least = {};
  double constant = 0;
  double ring_constant = 0;
  // Rings of at most this many ranks take this share of the time; 0 ranks: no ring does.
  uint32_t ranks_per_node = 0;
  double ring_within_node = 1;
  std::vector<GroupLoad> sequences;

  // The share of a load's ring time that it takes on `degree` ranks.
  double RingShare(uint32_t degree) const { return degree <= ranks_per_node ? ring_within_node : 1; }
  // DHP (10). degree >= 1.
  double Time(const GroupLoad& load, uint32_t degree) const {
    if (degree == 1) return load.Work() + constant;
    const double attention = load.attention / degree;
    const double ring = RingShare(degree) * load.ring * (degree - 1) / degree;
    return attention + load.linear / degree + constant + std::max(0.0, ring - attention) + ring_constant;
  }
  // Allows these degrees alone, ascending; of them, if `powers`, only powers of two.
  void Allow(const std::vector<uint32_t>& degrees, bool powers);
  // The least allowed degree from `degree` on, by `at_least` alone.
  uint32_t AtLeast(uint32_t degree) const {
    return at_least.empty() ? degree : at_least[std::min(degree, ranks + 1)];
  }
  uint32_t LargestDegree() const;
  // The least allowed degree that holds `tokens`; above `ranks` if there is none.
  uint32_t LeastDegree(uint64_t tokens) const;
  // The least time in which a load runs by itself, with any degree.
  double BestTime(const GroupLoad& load) const;
  // The next allowed degree after `degree`.
  uint32_t NextDegree(uint32_t degree) const { return powers_of_two ? 2 * degree : AtLeast(degree + 1); }
  // The least allowed degree with which the group takes at most `time`; 0: no degree up to `ranks`.
  uint32_t LeastDegreeWithin(const GroupLoad& load, double time) const;
};

// `input` must be valid (PlanContextParallel says so).
ContextParallelProblem MakeProblem(const ContextParallelInput& input);

// A group under construction.
struct Group {
  std::vector<uint32_t> sequences;
  GroupLoad load;
  uint32_t degree = 0;

  void Put(const ContextParallelProblem& problem, uint32_t sequence) {
    sequences.push_back(sequence);
    load.Add(problem.sequences[sequence]);
  }
};
using Microbatch = std::vector<Group>;

GroupLoad LoadOf(const ContextParallelProblem& problem, const std::vector<uint32_t>& sequences);
double TimeOf(const ContextParallelProblem& problem, const Microbatch& microbatch);
double TimeOf(const ContextParallelProblem& problem, const std::vector<Microbatch>& microbatches);
// The same, with sequences added up in the order of their numbers like a plan's times: the same bits however
// the groups were made, so that no plan is slower than another only by rounding.
double TimeAsPlanned(const ContextParallelProblem& problem, Group group);
double TimeAsPlanned(const ContextParallelProblem& problem, const std::vector<Microbatch>& microbatches);

// Heaviest on one rank first, ties by number.
std::vector<uint32_t> DearestSequencesFirst(const ContextParallelProblem& problem);
// Most tokens first, ties by number.
std::vector<uint32_t> LongestSequencesFirst(const ContextParallelProblem& problem);

// Precondition: every sequence fits on all ranks together.
using ContextParallelAlgorithm = std::vector<Microbatch> (*)(const ContextParallelProblem&);
std::vector<Microbatch> Dhp(const ContextParallelProblem& problem);
std::vector<Microbatch> StaticDegree(const ContextParallelProblem& problem);
// Empty if no degree takes less than `limit`.
std::vector<Microbatch> StaticDegreeBelow(const ContextParallelProblem& problem, double limit);
std::vector<Microbatch> Regroup(const ContextParallelProblem& problem);

// DHP's packing alone, with the least degree for each group: all ways in which `dhp` cuts the batch.
std::vector<std::vector<Microbatch>> PackAsDhp(const ContextParallelProblem& problem);

// A cut of the batch, sorted by length, into microbatches, for `regroup`. Times are those of a relaxation.
struct Cut {
  double time = 0;
  std::vector<std::vector<uint32_t>> microbatches;  // sequences of each, heaviest first
  std::vector<double> times;                        // of each; no grouping takes less
};
// The best cuts by the relaxation, into as many microbatches as memory requires, and one and two more.
std::vector<Cut> CutByLength(const ContextParallelProblem& problem);

// DHP's dynamic programme alone: the degrees of these groups with which the slowest is fastest.
void AllocateRanks(const ContextParallelProblem& problem, Microbatch& microbatch);

}  // namespace evenkeel::reorder
