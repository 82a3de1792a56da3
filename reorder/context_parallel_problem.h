// What the context-parallel algorithms see of a problem, what they share, and the algorithms: one file each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reorder/context_parallel.h"

namespace evenkeel::reorder {

// What a group's time and memory depend on.
struct GroupLoad {
  double attention = 0;  // time of one rank for all of it
  double linear = 0;     // the same
  double ring = 0;       // time of all chunks to go round
  uint64_t tokens = 0;

  void Add(const GroupLoad& other) {
    attention += other.attention;
    linear += other.linear;
    ring += other.ring;
    tokens += other.tokens;
  }
};

struct ContextParallelProblem {
  uint32_t ranks = 1;
  uint64_t tokens_per_rank = 0;  // at most; a group of d ranks holds d times as many
  bool powers_of_two = false;
  double constant = 0;
  double ring_constant = 0;
  std::vector<GroupLoad> sequences;

  // DHP (10). degree >= 1.
  double Time(const GroupLoad& load, uint32_t degree) const;
  // The least allowed degree that holds so many tokens; above `ranks` where there is none.
  uint32_t LeastDegree(uint64_t tokens) const;
  // The next allowed degree after `degree`.
  uint32_t NextDegree(uint32_t degree) const { return powers_of_two ? 2 * degree : degree + 1; }
  // The least allowed degree with which the group takes at most `time`; 0 where no degree up to `ranks` does.
  uint32_t LeastDegreeWithin(const GroupLoad& load, double time) const;
};

// A group that is being formed.
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

double TimeOf(const ContextParallelProblem& problem, const Microbatch& microbatch);
double TimeOf(const ContextParallelProblem& problem, const std::vector<Microbatch>& microbatches);
uint64_t RanksOf(const Microbatch& microbatch);

// Dearest on one rank first, equal ones by number.
std::vector<uint32_t> DearestSequencesFirst(const ContextParallelProblem& problem);
// Most tokens first, equal ones by number.
std::vector<uint32_t> LongestSequencesFirst(const ContextParallelProblem& problem);

// Every sequence fits on all ranks together.
using ContextParallelAlgorithm = std::vector<Microbatch> (*)(const ContextParallelProblem&);
std::vector<Microbatch> Dhp(const ContextParallelProblem& problem);
std::vector<Microbatch> StaticDegree(const ContextParallelProblem& problem);
std::vector<Microbatch> Regroup(const ContextParallelProblem& problem);

// DHP's dynamic programme alone: the degrees of these groups with which the slowest takes least.
void AllocateRanks(const ContextParallelProblem& problem, Microbatch& microbatch);

}  // namespace evenkeel::reorder
