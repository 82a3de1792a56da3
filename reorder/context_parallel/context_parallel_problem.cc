// Times and degrees of groups, and orders of sequences, shared by the algorithms.
#include "reorder/context_parallel/context_parallel_problem.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace evenkeel::reorder {
namespace {

// By ascending key, ties by number.
template <typename Key>
std::vector<uint32_t> SortedBy(const ContextParallelProblem& problem, const Key& key) {
  using Keyed = std::pair<decltype(key(problem.sequences[0])), uint32_t>;
  std::vector<Keyed> keyed;
  keyed.reserve(problem.sequences.size());
  for (uint32_t s = 0; s < problem.sequences.size(); ++s) keyed.emplace_back(key(problem.sequences[s]), s);
  std::sort(keyed.begin(), keyed.end());
  std::vector<uint32_t> order;
  order.reserve(keyed.size());
  for (const Keyed& sequence : keyed) order.push_back(sequence.second);
  return order;
}

}  // namespace

uint32_t ContextParallelProblem::LeastDegree(uint64_t tokens) const {
  const uint64_t needed = tokens / tokens_per_rank + (tokens % tokens_per_rank != 0);
  if (needed > ranks) return ranks + 1;
  uint32_t degree = 1;
  if (!powers_of_two) return std::max(degree, static_cast<uint32_t>(needed));
  while (degree < needed) degree *= 2;
  return degree;
}

uint32_t ContextParallelProblem::LeastDegreeWithin(const GroupLoad& load, double time) const {
  uint32_t degree = LeastDegree(load.tokens);
  if (degree == 1) {
    if (Time(load, 1) <= time) return 1;
    degree = 2;
  }
  if (ring_within_node == 1) return LeastDegreeWithin(load, load.ring, time, degree, ranks);
  const uint32_t within =
      LeastDegreeWithin(load, load.ring * ring_within_node, time, degree, std::min(ranks, ranks_per_node));
  if (within > 0) return within;
  while (degree <= ranks_per_node) degree = NextDegree(degree);
  return LeastDegreeWithin(load, load.ring, time, degree, ranks);
}

uint32_t ContextParallelProblem::LeastDegreeWithin(const GroupLoad& load, double ring, double time,
                                                   uint32_t degree, uint32_t most) const {
  if (degree > most) return 0;
  // On d > 1 ranks a group takes the larger of (attention + linear) / d and ring + (linear - ring) / d. The
  // first term falls with d; the second falls or rises. So no degree below `from` is enough, and if the first
  // degrees from it on are not, none is.
  const double left = time - constant - ring_constant;
  if (!(left > 0)) return Time(load, degree) <= time ? degree : 0;
  double from = (load.attention + load.linear) / left;
  if (load.linear > ring && left > ring) from = std::max(from, (load.linear - ring) / (left - ring));
  if (from > most + 1.0) return 0;
  if (!powers_of_two && from > degree + 1.0) degree = static_cast<uint32_t>(from) - 1;
  for (; degree <= most; degree = NextDegree(degree)) {
    if (Time(load, degree) <= time) return degree;
    if (degree > from + 1) return 0;
  }
  return 0;
}

double TimeOf(const ContextParallelProblem& problem, const Microbatch& microbatch) {
  double time = 0;
  for (const Group& group : microbatch) time = std::max(time, problem.Time(group.load, group.degree));
  return time;
}

double TimeOf(const ContextParallelProblem& problem, const std::vector<Microbatch>& microbatches) {
  double time = 0;
  for (const Microbatch& microbatch : microbatches) time += TimeOf(problem, microbatch);
  return time;
}

double TimeAsPlanned(const ContextParallelProblem& problem, Group group) {
  std::sort(group.sequences.begin(), group.sequences.end());
  GroupLoad load;
  for (uint32_t s : group.sequences) load.Add(problem.sequences[s]);
  return problem.Time(load, group.degree);
}

double TimeAsPlanned(const ContextParallelProblem& problem, const std::vector<Microbatch>& microbatches) {
  double time = 0;
  for (const Microbatch& microbatch : microbatches) {
    double slowest = 0;
    for (const Group& group : microbatch) slowest = std::max(slowest, TimeAsPlanned(problem, group));
    time += slowest;
  }
  return time;
}

uint64_t RanksOf(const Microbatch& microbatch) {
  uint64_t ranks = 0;
  for (const Group& group : microbatch) ranks += group.degree;
  return ranks;
}

std::vector<uint32_t> OrderOfTheBatch(const ContextParallelProblem& problem) {
  std::vector<uint32_t> order(problem.sequences.size());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

std::vector<uint32_t> DearestSequencesFirst(const ContextParallelProblem& problem) {
  return SortedBy(problem, [](const GroupLoad& load) { return -(load.attention + load.linear); });
}

std::vector<uint32_t> LongestSequencesFirst(const ContextParallelProblem& problem) {
  return SortedBy(problem, [](const GroupLoad& load) { return ~load.tokens; });
}

}  // namespace evenkeel::reorder
