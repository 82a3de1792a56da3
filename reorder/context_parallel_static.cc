// Static degrees, what trainers run today: every group of every microbatch has the same degree, and ranks
// that it does not divide are idle. D. Narayanan et al., "Efficient large-scale language model training on
// GPU clusters using Megatron-LM", 2021, as DHP compares with it (6.1): the degree must hold the longest
// sequence, and of all such degrees the best is taken; Megatron's are powers of two.
//
// Sequences come in the order of the batch, each to the group of the microbatch that has room for it and
// least to do; where none has room, the next microbatch begins.
#include <algorithm>
#include <limits>
#include <utility>

#include "reorder/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

// Nothing where it would take `limit` or more.
std::vector<Microbatch> DealInOrder(const ContextParallelProblem& problem, uint32_t degree, double limit) {
  const Microbatch empty(problem.ranks / degree, Group{.degree = degree});
  const uint64_t room = degree * problem.tokens_per_rank;
  std::vector<Microbatch> microbatches;
  for (uint32_t s = 0; s < problem.sequences.size(); ++s) {
    const uint64_t tokens = problem.sequences[s].tokens;
    Group* least = nullptr;
    if (!microbatches.empty()) {
      for (Group& group : microbatches.back()) {
        if (group.load.tokens + tokens > room) continue;
        if (least == nullptr ||
            group.load.attention + group.load.linear < least->load.attention + least->load.linear) {
          least = &group;
        }
      }
    }
    if (least == nullptr) {
      if (TimeOf(problem, microbatches) >= limit) return {};
      least = &microbatches.emplace_back(empty).front();
    }
    least->Put(problem, s);
  }
  for (Microbatch& microbatch : microbatches) {
    std::erase_if(microbatch, [](const Group& group) { return group.sequences.empty(); });
  }
  return microbatches;
}

}  // namespace

std::vector<Microbatch> StaticDegree(const ContextParallelProblem& problem) {
  uint64_t longest = 0;
  for (const GroupLoad& sequence : problem.sequences) longest = std::max(longest, sequence.tokens);
  std::vector<Microbatch> best;
  double least_time = std::numeric_limits<double>::infinity();
  for (uint32_t degree = problem.LeastDegree(longest); degree <= problem.ranks;
       degree = problem.NextDegree(degree)) {
    std::vector<Microbatch> dealt = DealInOrder(problem, degree, least_time);
    const double time = TimeOf(problem, dealt);
    if (!dealt.empty() && time < least_time) best = std::move(dealt), least_time = time;
  }
  return best;
}

}  // namespace evenkeel::reorder
