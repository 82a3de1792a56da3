// Best-fit decreasing (D. S. Johnson, "Near-optimal bin packing algorithms", 1973) for several phases:
// samples from the largest share of a capacity to the smallest, each into the bin where it fits and leaves
// the least room.
//
// The room of a bin is its smallest free share of a capacity over all phases; ties are broken by the free
// shares of all phases together. A bin whose room is the sample's smallest share may fit the sample, and one
// whose room is the sample's largest share always does. So a bounded number of the former is tried, then of
// bins in between, then the first of the latter is taken.
#include <algorithm>
#include <set>
#include <tuple>

#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {
namespace {

constexpr int kMaxTried = 16;
constexpr int kMaxTriedBetween = 2;
constexpr int kSteps = 8;

class BestFit {
 public:
  BestFit(const PackProblem& problem, Bins& bins) : problem_(problem), bins_(bins), load_(bins.size()) {
    for (int p = 0; p < problem.num_phases; ++p) {
      if (problem.capacity[p] > 0) to_share_[p] = 1 / problem.capacity[p];
    }
    std::vector<Room> rooms;
    rooms.reserve(bins.size());
    for (uint32_t b = 0; b < bins.size(); ++b) {
      for (uint32_t sample : bins[b]) Add(problem, load_[b], problem.lengths[sample]);
      rooms.push_back(RoomOf(b));
    }
    std::sort(rooms.begin(), rooms.end());
    by_room_ = {rooms.begin(), rooms.end()};  // already sorted, so in linear time
  }

  void Place(uint32_t sample) {
    const uint32_t bin = Find(problem_.lengths[sample]);
    by_room_.erase(RoomOf(bin));
    bins_[bin].push_back(sample);
    Add(problem_, load_[bin], problem_.lengths[sample]);
    by_room_.insert(RoomOf(bin));
  }

 private:
  struct Room {
    double least, sum;
    uint32_t bin;
    bool operator<(const Room& other) const {
      return std::tuple(least, sum, bin) < std::tuple(other.least, other.sum, other.bin);
    }
  };

  Room RoomOf(uint32_t bin) const {
    Room room{1, 0, bin};
    for (int p = 0; p < problem_.num_phases; ++p) {
      if (to_share_[p] == 0) continue;
      const double share = (problem_.capacity[p] - load_[bin][p]) * to_share_[p];
      room.least = std::min(room.least, share), room.sum += share;
    }
    return room;
  }

  uint32_t Find(const uint32_t* sample) {
    constexpr double kRounding = 1e-12;  // a bin with exactly the room must not be skipped
    double least = 1, largest = 0;
    for (int p = 0; p < problem_.num_phases; ++p) {
      if (to_share_[p] == 0) continue;
      least = std::min(least, sample[p] * to_share_[p] - kRounding);
      largest = std::max(largest, sample[p] * to_share_[p] - kRounding);
    }
    // In between, at even distances: if there are many bins, the fullest ones are often full in the same
    // phase.
    for (int step = 0; step <= kSteps; ++step) {
      const double room = least + (largest - least) * step / kSteps;
      auto it = by_room_.lower_bound({room, 0, 0});
      const int most = step == 0 || step == kSteps ? kMaxTried : kMaxTriedBetween;
      for (int tried = 0; it != by_room_.end() && tried < most; ++it, ++tried) {
        if (Fits(problem_, load_[it->bin], sample)) return it->bin;
      }
    }
    bins_.emplace_back();
    load_.emplace_back();
    const uint32_t bin = static_cast<uint32_t>(bins_.size() - 1);
    by_room_.insert(RoomOf(bin));
    return bin;
  }

  const PackProblem& problem_;
  Bins& bins_;
  PhaseLoads to_share_{};
  std::vector<PhaseLoads> load_;  // [bins]
  std::set<Room> by_room_;
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
