// Iterative sampling and filtering: OmniBal, algorithm 1 and section 5.1.
//
// Sampling deals a random permutation of the samples into groups: a group ends before the sample with which
// it would exceed a capacity (Qv, Qt). Filtering keeps the groups that reach a target (Q'v or Q't) in any
// phase and returns the samples of all others to the data set, for the next iteration.
//
// The paper leaves open what becomes of samples that no iteration keeps, and of a permutation's last group.
// Here the groups of the last iteration are all kept, so that nothing is dropped, and a last group is
// filtered as any other.
#include <utility>

#include "reorder/keyed_shuffle.h"
#include "reorder/pack_problem.h"

namespace evenkeel::reorder {
namespace {

Bins SamplingStage(const PackProblem& problem, const std::vector<uint32_t>& permutation) {
  Bins groups;
  std::vector<uint32_t> group;
  PhaseLoads load{};
  for (uint32_t sample : permutation) {
    if (!group.empty() && !Fits(problem, load, problem.lengths[sample])) {
      groups.push_back(std::exchange(group, {}));
      load = {};
    }
    group.push_back(sample);
    Add(load, problem.lengths[sample]);
  }
  if (!group.empty()) groups.push_back(std::move(group));
  return groups;
}

bool ReachesATarget(const PackProblem& problem, const std::vector<uint32_t>& group) {
  PhaseLoads load{};
  for (uint32_t sample : group) Add(load, problem.lengths[sample]);
  for (int p = 0; p < kNumPhases; ++p) {
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
    Bins candidates = SamplingStage(problem, dataset);
    dataset.clear();
    for (std::vector<uint32_t>& group : candidates) {
      if (iteration == problem.iterations || ReachesATarget(problem, group)) {
        kept.push_back(std::move(group));
      } else {
        dataset.insert(dataset.end(), group.begin(), group.end());
      }
    }
    if (dataset.empty()) return kept;
    Shuffle(dataset, numbers);
  }
}

}  // namespace evenkeel::reorder
