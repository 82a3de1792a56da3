// Times and degrees of groups, and orders of sequences, shared by the algorithms.
#include "reorder/context_parallel/context_parallel_problem.h"

#include <algorithm>
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

void ContextParallelProblem::Allow(const std::vector<uint32_t>& degrees, bool powers) {
  at_least.assign(ranks + 2, ranks + 1);
  for (uint32_t degree : degrees) {
    if (!powers || (degree & (degree - 1)) == 0) at_least[degree] = degree;
  }
  for (uint32_t d = ranks + 1; d > 0; --d) at_least[d - 1] = std::min(at_least[d - 1], at_least[d]);
  powers_of_two = false;  // at_least has it
}

uint32_t ContextParallelProblem::LargestDegree() const {
  uint32_t largest = 0;
  for (uint32_t degree = AtLeast(1); degree <= ranks; degree = NextDegree(degree)) largest = degree;
  return largest;
}

uint32_t ContextParallelProblem::LeastDegree(uint64_t tokens) const {
  const uint64_t needed = tokens / tokens_per_rank + (tokens % tokens_per_rank != 0);
  if (needed > ranks) return ranks + 1;
  uint32_t degree = 1;
  if (!powers_of_two) return AtLeast(std::max(degree, static_cast<uint32_t>(needed)));
  while (degree < needed) degree *= 2;
  return degree;
}

uint32_t ContextParallelProblem::LeastDegreeWithin(const GroupLoad& load, double time) const {
  uint32_t degree = LeastDegree(load.tokens);
  // On d ranks a group takes at least its work / d, so no degree below `from` is enough.
  const double from = time > constant ? load.Work() / (time - constant) : 0;
  if (from > ranks + 1.0) return 0;
  if (!powers_of_two && from > degree + 1.0) degree = AtLeast(static_cast<uint32_t>(from) - 1);
  for (; degree <= ranks; degree = NextDegree(degree)) {
    if (Time(load, degree) <= time) return degree;
  }
  return 0;
}

double ContextParallelProblem::BestTime(const GroupLoad& load) const {
  uint32_t degree = LeastDegree(load.tokens);
  double best = Time(load, degree);
  for (; degree <= ranks; degree = NextDegree(degree)) best = std::min(best, Time(load, degree));
  return best;
}

GroupLoad LoadOf(const ContextParallelProblem& problem, const std::vector<uint32_t>& sequences) {
  GroupLoad load;
  for (uint32_t s : sequences) load.Add(problem.sequences[s]);
  return load;
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
  return problem.Time(LoadOf(problem, group.sequences), group.degree);
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

std::vector<uint32_t> DearestSequencesFirst(const ContextParallelProblem& problem) {
  return SortedBy(problem, [](const GroupLoad& load) { return -load.Work(); });
}

std::vector<uint32_t> LongestSequencesFirst(const ContextParallelProblem& problem) {
  return SortedBy(problem, [](const GroupLoad& load) { return ~load.tokens; });
}

}  // namespace evenkeel::reorder
