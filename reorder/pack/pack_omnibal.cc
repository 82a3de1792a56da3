// Iterative sampling and filtering: OmniBal, algorithm 1 and section 5.1.
//
// Sampling cuts a random permutation of the samples into groups: a group ends before the sample that would
// exceed a capacity (Qv, Qt). Filtering keeps the groups that reach a target (Q'v or Q't) in any phase, and
// returns the samples of all others for the next iteration.
//
// The paper does not say what happens to samples that no iteration keeps, nor to the last group of a
// permutation. Here all groups of the last iteration are kept, so that no sample is dropped, and a last group
// is filtered like any other.
#include <algorithm>

#include "reorder/keyed_shuffle.h"
#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {
namespace {

// A slice of a permutation.
struct Group {
  size_t begin = 0, end = 0;
  PhaseLoads load{};
};

std::vector<Group> SamplingStage(const PackProblem& problem, const std::vector<uint32_t>& permutation) {
  std::vector<Group> groups;
  Group group;
  for (size_t i = 0; i < permutation.size(); ++i) {
    const uint32_t* const sample = problem.lengths[permutation[i]];
    if (group.end > group.begin && !Fits(problem, group.load, sample)) {
      groups.push_back(group);
      group = {.begin = i};
    }
    group.end = i + 1;
    Add(problem, group.load, sample);
  }
  if (group.end > group.begin) groups.push_back(group);
  return groups;
}

bool ReachesATarget(const PackProblem& problem, const PhaseLoads& load) {
  for (int p = 0; p < problem.num_phases; ++p) {
    if (problem.total[p] > 0 && load[p] >= problem.target[p]) return true;
  }
  return false;
}

}  // namespace

Bins PackOmnibal(const PackProblem& problem) {
  KeyedNumbers numbers(problem.seed);
  Bins kept;
  std::vector<uint32_t> dataset = ShuffledOrder(static_cast<uint32_t>(problem.lengths.size()), numbers);
  for (uint32_t iteration = 1;; ++iteration) {
    size_t returned = 0;
    for (const Group& group : SamplingStage(problem, dataset)) {
      const auto begin = dataset.begin() + static_cast<ptrdiff_t>(group.begin);
      const auto end = dataset.begin() + static_cast<ptrdiff_t>(group.end);
      if (iteration == problem.iterations || ReachesATarget(problem, group.load)) {
        kept.emplace_back(begin, end);
      } else {
        std::copy(begin, end, dataset.begin() + static_cast<ptrdiff_t>(returned));
        returned += group.end - group.begin;
      }
    }
    dataset.resize(returned);
    if (dataset.empty()) return kept;
    Shuffle(dataset, numbers);
  }
}

}  // namespace evenkeel::reorder
