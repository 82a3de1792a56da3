#include "reorder/context_parallel_problem.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::reorder {
namespace {

template <typename Key>
std::vector<uint32_t> LargestFirst(const ContextParallelProblem& problem, const Key& key) {
  std::vector<uint32_t> order = OrderOfTheBatch(problem);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
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
  // On d > 1 ranks a group takes the larger of (attention + linear) / d and ring + (linear - ring) / d. The
  // former falls with d and so does the latter, or it rises: no degree below `from` will do, and where the
  // first ones beyond it do not, none does.
  const double left = time - constant - ring_constant;
  if (!(left > 0)) return Time(load, degree) <= time && degree <= ranks ? degree : 0;
  double from = (load.attention + load.linear) / left;
  if (load.linear > load.ring && left > load.ring) {
    from = std::max(from, (load.linear - load.ring) / (left - load.ring));
  }
  if (from > ranks + 1.0) return 0;
  if (!powers_of_two && from > degree + 1.0) degree = static_cast<uint32_t>(from) - 1;
  for (; degree <= ranks; degree = NextDegree(degree)) {
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
  return LargestFirst(
      problem, [&](uint32_t s) { return problem.sequences[s].attention + problem.sequences[s].linear; });
}

std::vector<uint32_t> LongestSequencesFirst(const ContextParallelProblem& problem) {
  return LargestFirst(problem, [&](uint32_t s) { return problem.sequences[s].tokens; });
}

}  // namespace evenkeel::reorder
