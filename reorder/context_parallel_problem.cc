#include "reorder/context_parallel_problem.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::reorder {
namespace {

template <typename Key>
std::vector<uint32_t> LargestFirst(size_t count, const Key& key) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
  return order;
}

}  // namespace

double ContextParallelProblem::Time(const GroupLoad& load, uint32_t degree) const {
  if (degree == 1) return load.attention + load.linear + constant;
  const double attention = load.attention / degree;
  const double ring = load.ring * (degree - 1) / degree;
  return attention + load.linear / degree + constant + std::max(0.0, ring - attention) + ring_constant;
}

uint32_t ContextParallelProblem::LeastDegree(uint64_t tokens) const {
  const uint64_t needed = tokens / tokens_per_rank + (tokens % tokens_per_rank != 0);
  if (needed > ranks) return ranks + 1;
  uint32_t degree = 1;
  if (!powers_of_two) return std::max(degree, static_cast<uint32_t>(needed));
  while (degree < needed) degree *= 2;
  return degree;
}

uint32_t ContextParallelProblem::LeastDegreeWithin(const GroupLoad& load, double time) const {
  // No degree below total / time can do; beyond it the ring decides, and more ranks may be worse.
  uint32_t degree = LeastDegree(load.tokens);
  if (!powers_of_two && time > constant) {
    const double least = (load.attention + load.linear) / (time - constant);
    if (least > ranks + 1.0) return 0;
    if (least > degree + 1.0) degree = static_cast<uint32_t>(least) - 1;
  }
  for (; degree <= ranks; degree = NextDegree(degree)) {
    if (Time(load, degree) <= time) return degree;
    // Where the ring shows, more ranks only lengthen what it takes beyond the linear part.
    const bool ring_shows = degree > 1 && load.ring * (degree - 1) > load.attention;
    if (ring_shows && load.ring >= load.linear) return 0;
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

std::vector<uint32_t> DearestSequencesFirst(const ContextParallelProblem& problem) {
  return LargestFirst(problem.sequences.size(), [&](uint32_t s) {
    return problem.sequences[s].attention + problem.sequences[s].linear;
  });
}

std::vector<uint32_t> LongestSequencesFirst(const ContextParallelProblem& problem) {
  return LargestFirst(problem.sequences.size(), [&](uint32_t s) { return problem.sequences[s].tokens; });
}

}  // namespace evenkeel::reorder
