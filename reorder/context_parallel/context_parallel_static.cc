// Static degrees, which trainers use today: every group of every microbatch has the same degree, and ranks
// left over by the division are idle. D. Narayanan et al., "Efficient large-scale language model training on
// GPU clusters using Megatron-LM", 2021, as compared by DHP (6.1): the degree must hold the longest sequence,
// and the best of all such degrees is taken; Megatron's are powers of two.
//
// Sequences come in the order of the batch, each to the group of the microbatch that has room for it and the
// least work; if none has room, the next microbatch begins.
#include <algorithm>
#include <limits>
#include <utility>

#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

// The place of every sequence with one degree, and the total time: infinite from `limit` on.
struct Dealt {
  std::vector<uint32_t> microbatch, group;  // [sequences]
  uint32_t microbatches = 0;
  double time = 0;
};

void DealInOrder(const ContextParallelProblem& problem, uint32_t degree, double limit, Dealt& dealt) {
  std::vector<GroupLoad> groups(problem.ranks / degree);
  std::vector<double> work(groups.size());  // of each group, in an array of its own for the search
  const uint64_t room = degree * problem.tokens_per_rank;
  const auto close = [&] {
    double slowest = 0;  // a group without sequences takes no longer than any other
    for (const GroupLoad& load : groups) slowest = std::max(slowest, problem.Time(load, degree));
    dealt.time += slowest;
  };
  dealt.microbatches = 0, dealt.time = 0;
  for (uint32_t s = 0; s < problem.sequences.size(); ++s) {
    const uint64_t tokens = problem.sequences[s].tokens;
    size_t least = groups.size();
    for (size_t g = 0; dealt.microbatches > 0 && g < groups.size(); ++g) {
      if (least < groups.size() && work[g] >= work[least]) continue;
      if (groups[g].tokens + tokens <= room) least = g;
    }
    if (least == groups.size()) {
      if (dealt.microbatches > 0) close();
      if (dealt.time >= limit) {
        dealt.time = std::numeric_limits<double>::infinity();
        return;
      }
      std::fill(groups.begin(), groups.end(), GroupLoad{});
      std::fill(work.begin(), work.end(), 0.0);
      ++dealt.microbatches;
      least = 0;
    }
    dealt.microbatch[s] = dealt.microbatches - 1;
    dealt.group[s] = static_cast<uint32_t>(least);
    groups[least].Add(problem.sequences[s]);
    work[least] = groups[least].Work();
  }
  if (dealt.microbatches > 0) close();
}

std::vector<Microbatch> MakeMicrobatches(const ContextParallelProblem& problem, uint32_t degree,
                                         const Dealt& dealt) {
  std::vector<Microbatch> made(dealt.microbatches,
                               Microbatch(problem.ranks / degree, Group{.degree = degree}));
  for (uint32_t s = 0; s < problem.sequences.size(); ++s) {
    made[dealt.microbatch[s]][dealt.group[s]].Put(problem, s);
  }
  for (Microbatch& microbatch : made) {
    std::erase_if(microbatch, [](const Group& group) { return group.sequences.empty(); });
  }
  return made;
}

}  // namespace

std::vector<Microbatch> StaticDegreeBelow(const ContextParallelProblem& problem, double limit) {
  uint64_t longest = 0;
  for (const GroupLoad& sequence : problem.sequences) longest = std::max(longest, sequence.tokens);
  const size_t count = problem.sequences.size();
  Dealt dealt{.microbatch = std::vector<uint32_t>(count), .group = std::vector<uint32_t>(count)};
  Dealt best = dealt;
  uint32_t best_degree = 0;
  best.time = limit;
  for (uint32_t degree = problem.LeastDegree(longest); degree <= problem.ranks;
       degree = problem.NextDegree(degree)) {
    DealInOrder(problem, degree, best.time, dealt);
    if (dealt.time < best.time) std::swap(best, dealt), best_degree = degree;
  }
  return best_degree == 0 ? std::vector<Microbatch>() : MakeMicrobatches(problem, best_degree, best);
}

std::vector<Microbatch> StaticDegree(const ContextParallelProblem& problem) {
  return StaticDegreeBelow(problem, std::numeric_limits<double>::infinity());
}

}  // namespace evenkeel::reorder
