// Places the groups of a context-parallel plan on aligned ranks, wave by wave.
#include "reorder/context_parallel/waves.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/context_parallel/aligned_places.h"
#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

class Placer {
 public:
  Placer(const ContextParallelInput& input, const ContextParallelProblem& problem)
      : input_(input), problem_(problem) {}

  std::vector<Wave> Run(const ContextParallelPlan& plan) {
    for (const ContextParallelMicrobatch& microbatch : plan.microbatches) {
      std::vector<ContextParallelGroup> groups = microbatch.groups;  // the largest first
      while (!groups.empty()) groups = PlaceOneWave(std::move(groups));
    }
    if (waves_.empty()) PlaceOneWave({});
    return std::move(waves_);
  }

 private:
  // Returns the groups that found no place.
  std::vector<ContextParallelGroup> PlaceOneWave(std::vector<ContextParallelGroup> groups) {
    AlignedPlaces places(input_.ranks);
    std::vector<ContextParallelGroup> left;
    Wave& wave = waves_.emplace_back();
    for (ContextParallelGroup& group : groups) {
      if (const std::vector<RankGroup> place = FindPlace(group, places); !place.empty()) {
        wave.push_back({place.front(), std::move(group.sequences)});
      } else {
        left.push_back(std::move(group));
      }
    }
    for (const RankGroup& idle : places.Take(1, input_.ranks)) wave.push_back({idle, {}});
    std::sort(wave.begin(), wave.end(),
              [](const PlacedGroup& a, const PlacedGroup& b) { return a.ranks < b.ranks; });
    return left;
  }

  // A place of the group's degree, or else of the largest smaller one that holds its sequences; or nothing.
  std::vector<RankGroup> FindPlace(const ContextParallelGroup& group, AlignedPlaces& places) const {
    const uint32_t least = problem_.LeastDegree(LoadOf(problem_, group.sequences).tokens);
    for (auto size = input_.degrees.rbegin(); size != input_.degrees.rend() && *size >= least; ++size) {
      if (*size > group.degree) continue;
      if (std::vector<RankGroup> place = places.Take(*size, 1); !place.empty()) return place;
    }
    return {};
  }

  const ContextParallelInput& input_;
  const ContextParallelProblem& problem_;
  std::vector<Wave> waves_;
};

absl::StatusOr<std::vector<Wave>> PlanAndPlace(const ContextParallelInput& input) {
  EVENKEEL_ASSIGN_OR_RETURN(const ContextParallelPlan plan, PlanContextParallel(input));
  return Placer(input, MakeProblem(input)).Run(plan);
}

}  // namespace

double TimeOfWaves(const ContextParallelInput& input, const std::vector<Wave>& waves) {
  const ContextParallelProblem problem = MakeProblem(input);
  double time = 0;
  for (const Wave& wave : waves) {
    double slowest = 0;
    for (const PlacedGroup& group : wave) {
      if (group.sequences.empty()) continue;
      slowest = std::max(slowest, problem.Time(LoadOf(problem, group.sequences), group.ranks.size));
    }
    time += slowest;
  }
  return time;
}

std::string WaveAlgorithmNames() {
  return absl::StrCat(ContextParallelAlgorithmNames(), ", ", std::string(kPersistent));
}

absl::StatusOr<std::vector<Wave>> PlanWaves(const ContextParallelInput& input) {
  if (input.algorithm == kPersistent) {
    ContextParallelInput checked = input;
    checked.algorithm = ContextParallelInput().algorithm;
    EVENKEEL_RETURN_IF_ERROR(CheckContextParallel(checked));
    return PersistentWaves(checked);
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<Wave> waves, PlanAndPlace(input));
  // Groups of powers of two always find their places, so that they may be faster in the end.
  ContextParallelInput powers = input;
  std::erase_if(powers.degrees, [](uint32_t degree) { return (degree & (degree - 1)) != 0; });
  if (powers.degrees.size() == input.degrees.size()) return waves;
  absl::StatusOr<std::vector<Wave>> of_powers = PlanAndPlace(powers);
  // Fewer sizes may hold less; then the waves of all sizes are taken.
  if (of_powers.ok() && TimeOfWaves(input, *of_powers) <= TimeOfWaves(input, waves)) return of_powers;
  return waves;
}

}  // namespace evenkeel::reorder
