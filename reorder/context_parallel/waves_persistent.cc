// Groups that stay the same for a whole step, each with its own sequences in as many waves as it needs: no group waits for
// another one before the end of the step.
//
// Several layouts are tried, and the one whose slowest group ends first is taken: groups of one size; and groups whose ranks
// are in proportion to the work of the sequences that need this size, or two or four times it. In each, sequences go, heaviest
// first, to the group that would end first with them, among those that hold them; then a group's sequences are cut into waves by
// best-fit decreasing.
#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <utility>

#include "reorder/context_parallel/aligned_places.h"
#include "reorder/context_parallel/context_parallel_problem.h"
#include "reorder/context_parallel/waves.h"

namespace evenkeel::reorder {
namespace {

struct Fixed {
  RankGroup ranks;
  double end = 0;
  std::vector<uint32_t> sequences;
  std::vector<Group> waves = {};
};

class Persistent {
 public:
  Persistent(const ContextParallelInput& input, const ContextParallelProblem& problem)
      : degrees_(input.degrees), problem_(problem), heaviest_first_(DearestSequencesFirst(problem)) {
    for (const GroupLoad& sequence : problem.sequences) {
      least_.push_back(problem.LeastDegree(sequence.tokens));
      needed_ = std::max(needed_, least_.back());
    }
  }

  std::vector<Wave> Run() {
    for (uint32_t degree : degrees_) {
      if (degree >= needed_) Try({{degree, problem_.ranks / degree}});
    }
    for (uint32_t factor : {1u, 2u, 4u}) Try(InProportion(factor));
    size_t waves = 1;
    for (const Fixed& group : best_) waves = std::max(waves, group.waves.size());
    std::vector<Wave> out(waves);
    for (Fixed& group : best_) {
      for (size_t w = 0; w < waves; ++w) {
        std::vector<uint32_t> sequences;
        if (w < group.waves.size()) sequences = std::move(group.waves[w].sequences);
        std::sort(sequences.begin(), sequences.end());
        out[w].push_back({group.ranks, std::move(sequences)});
      }
    }
    return out;
  }

 private:
  using Counts = std::map<uint32_t, uint32_t, std::greater<>>;  // groups of each size, the largest first

  // At least one group of every size that is needed, and one that holds the longest sequence.
  Counts InProportion(uint32_t factor) const {
    std::map<uint32_t, double, std::greater<>> work;
    double all = 0;
    for (size_t s = 0; s < least_.size(); ++s) {
      const uint32_t size = problem_.AtLeast(std::min(least_[s] * factor, degrees_.back()));
      work[size] += problem_.sequences[s].Work();
      all += problem_.sequences[s].Work();
    }
    Counts counts;
    for (const auto& [size, of_size] : work) {
      const double groups = all > 0 ? of_size / all * problem_.ranks / size : 0;
      counts[size] = std::max(1u, static_cast<uint32_t>(groups + 0.5));
    }
    return counts;
  }

  // Places as many of the groups as fit, the largest first; the ranks that are left are alone.
  std::vector<Fixed> Place(const Counts& counts) const {
    AlignedPlaces places(problem_.ranks);
    std::vector<Fixed> groups;
    const auto take = [&](uint32_t size, uint32_t count) {
      for (const RankGroup& ranks : places.Take(size, count))
        groups.push_back({.ranks = ranks, .sequences = {}});
    };
    for (const auto& [size, count] : counts) take(size, count);
    take(1, problem_.ranks);
    std::sort(groups.begin(), groups.end(), [](const Fixed& a, const Fixed& b) { return a.ranks < b.ranks; });
    return groups;
  }

  void Try(const Counts& counts) {
    std::vector<Fixed> groups = Place(counts);
    Assign(groups);
    double slowest = 0;
    for (Fixed& group : groups) {
      CutIntoWaves(group);
      group.end = 0;
      for (const Group& wave : group.waves) group.end += problem_.Time(wave.load, group.ranks.size);
      slowest = std::max(slowest, group.end);
    }
    if (slowest < fastest_) fastest_ = slowest, best_ = std::move(groups);
  }

  void Assign(std::vector<Fixed>& groups) const {
    // By size, the groups that end first; equal ones by their first rank.
    using Ends = std::pair<double, uint32_t>;
    std::map<uint32_t, std::priority_queue<Ends, std::vector<Ends>, std::greater<>>> by_size;
    for (uint32_t g = 0; g < groups.size(); ++g) by_size[groups[g].ranks.size].push({0, g});
    for (uint32_t s : heaviest_first_) {
      double ends_first = std::numeric_limits<double>::infinity();
      uint32_t size = 0;
      for (auto it = by_size.lower_bound(least_[s]); it != by_size.end(); ++it) {
        const double end = it->second.top().first + problem_.Time(problem_.sequences[s], it->first);
        if (end < ends_first) ends_first = end, size = it->first;
      }
      auto& queue = by_size.at(size);
      const uint32_t g = queue.top().second;
      queue.pop();
      groups[g].sequences.push_back(s);
      queue.push({ends_first, g});
    }
  }

  void CutIntoWaves(Fixed& group) const {
    const uint64_t room = group.ranks.size * problem_.tokens_per_rank;
    std::stable_sort(group.sequences.begin(), group.sequences.end(), [&](uint32_t a, uint32_t b) {
      return problem_.sequences[a].tokens > problem_.sequences[b].tokens;
    });
    for (uint32_t s : group.sequences) {
      Group* fullest = nullptr;
      for (Group& wave : group.waves) {
        if (wave.load.tokens + problem_.sequences[s].tokens > room) continue;
        if (fullest == nullptr || wave.load.tokens > fullest->load.tokens) fullest = &wave;
      }
      if (fullest == nullptr) fullest = &group.waves.emplace_back();
      fullest->Put(problem_, s);
    }
  }

  const std::vector<uint32_t>& degrees_;
  const ContextParallelProblem& problem_;
  const std::vector<uint32_t> heaviest_first_;
  std::vector<uint32_t> least_;  // [sequences] the least degree that holds each
  uint32_t needed_ = 1;          // that of the longest
  double fastest_ = std::numeric_limits<double>::infinity();
  std::vector<Fixed> best_;
};

}  // namespace

std::vector<Wave> PersistentWaves(const ContextParallelInput& input) {
  const ContextParallelProblem problem = MakeProblem(input);
  return Persistent(input, problem).Run();
}

}  // namespace evenkeel::reorder
