// Best-fit decreasing (D. S. Johnson, "Near-optimal bin packing algorithms", 1973), in several phases:
// samples from the largest share of a capacity to the smallest, each to the bin where it fits and leaves
// least room.
//
// Room is that of the phase in which a bin has least of its capacity left. A bin with as much of it as the
// largest share of the sample fits; bins with less may fit as well, and a bounded number of them is tried
// before the sample opens a bin.
#include <algorithm>
#include <set>
#include <utility>

#include "reorder/pack_problem.h"

namespace evenkeel::reorder {
namespace {

constexpr int kMostTried = 32;

class BestFit {
 public:
  BestFit(const PackProblem& problem, Bins& bins) : problem_(problem), bins_(bins), load_(bins.size()) {
    for (int p = 0; p < kNumPhases; ++p) {
      if (problem.capacity[p] > 0) to_share_[p] = 1 / problem.capacity[p];
    }
    for (uint32_t b = 0; b < bins.size(); ++b) {
      for (uint32_t sample : bins[b]) Add(load_[b], problem.lengths[sample]);
      by_room_.insert({Room(b), b});
    }
  }

  void Place(uint32_t sample) {
    const uint32_t bin = Find(problem_.lengths[sample]);
    by_room_.erase({Room(bin), bin});
    bins_[bin].push_back(sample);
    Add(load_[bin], problem_.lengths[sample]);
    by_room_.insert({Room(bin), bin});
  }

 private:
  double Room(uint32_t bin) const {
    double room = 1;
    for (int p = 0; p < kNumPhases; ++p) {
      if (to_share_[p] > 0) room = std::min(room, (problem_.capacity[p] - load_[bin][p]) * to_share_[p]);
    }
    return room;
  }

  uint32_t Find(const PhaseLengths& sample) {
    double share = 0;
    for (int p = 0; p < kNumPhases; ++p) share = std::max(share, sample[p] * to_share_[p]);
    const auto enough = by_room_.lower_bound({share, 0});
    if (enough != by_room_.end() && Fits(problem_, load_[enough->second], sample)) return enough->second;
    auto less = enough;
    for (int tried = 0; tried < kMostTried && less != by_room_.begin(); ++tried) {
      if (Fits(problem_, load_[(--less)->second], sample)) return less->second;
    }
    bins_.emplace_back();
    load_.emplace_back();
    const uint32_t bin = static_cast<uint32_t>(bins_.size() - 1);
    by_room_.insert({Room(bin), bin});
    return bin;
  }

  const PackProblem& problem_;
  Bins& bins_;
  PhaseLoads to_share_{};
  std::vector<PhaseLoads> load_;                   // [bins]
  std::set<std::pair<double, uint32_t>> by_room_;  // (room, bin)
};

}  // namespace

void AddBestFit(const PackProblem& problem, const std::vector<uint32_t>& samples, Bins& bins) {
  BestFit best_fit(problem, bins);
  for (uint32_t sample : samples) best_fit.Place(sample);
}

Bins PackBestFitDecreasing(const PackProblem& problem) {
  Bins bins;
  AddBestFit(problem, LargestShareFirst(problem, problem.capacity), bins);
  return bins;
}

}  // namespace evenkeel::reorder
