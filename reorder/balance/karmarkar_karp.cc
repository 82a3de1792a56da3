// The largest differencing method for many ranks: N. Karmarkar and R. M. Karp, "The differencing method of
// set partitioning", UCB/CSD 82/113, 1982; as trainers use it today to balance sequence lengths, also with
// the same number of units on every rank.
//
// Every unit begins as a partition of itself: one bin holds it and all others are empty. The two partitions
// with the largest spread (fullest minus emptiest bin) are merged, the fullest bin of the one with the
// emptiest of the other, until one partition is left. With equal counts the partitions to begin with hold
// one unit in every bin: the heaviest units, the next ones, and so on.
//
// Empty bins are not stored, and the smaller partition is merged into the larger, so that single units cost
// little: the dense form would need units times ranks of memory. A merge takes time in the bins that are
// stored.
#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "reorder/balance/balance.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kNone = 0xffffffffu;

// A set of units as a list: `next[head]` and so on to `tail`.
struct Bin {
  Load load = 0;
  uint32_t head = kNone;
  uint32_t tail = kNone;
};

class Differencing {
 public:
  Differencing(std::span<const Load> cost, uint32_t ranks)
      : cost_(cost), ranks_(ranks), next_(cost.size(), kNone) {}

  // The bin of every unit. A partition begins with `size` units, heaviest first, one in every bin; the last
  // one may have empty bins.
  std::vector<uint32_t> Run(size_t size) {
    std::vector<uint32_t> rank(cost_.size(), 0);
    for (uint32_t unit : HeaviestFirst(cost_)) {
      if (partitions_.empty() || partitions_.back().size() == size) partitions_.emplace_back();
      partitions_.back().push_back({cost_[unit], unit, unit});
    }
    if (partitions_.empty()) return rank;
    for (uint32_t p = 0; p < partitions_.size(); ++p) Push(p);
    while (queue_.size() > 1) {
      uint32_t a = Pop(), b = Pop();
      if (partitions_[a].size() < partitions_[b].size()) std::swap(a, b);
      Merge(partitions_[a], partitions_[b]);
      std::vector<Bin>().swap(partitions_[b]);
      Push(a);
    }
    const std::vector<Bin>& bins = partitions_[queue_.top().partition];
    for (uint32_t r = 0; r < bins.size(); ++r) {
      for (uint32_t unit = bins[r].head; unit != kNone; unit = next_[unit]) rank[unit] = r;
    }
    return rank;
  }

 private:
  struct Entry {
    Load spread;
    uint32_t age;  // the older of equals first
    uint32_t partition;
    bool operator<(const Entry& other) const {
      return std::tuple(spread, other.age) < std::tuple(other.spread, age);
    }
  };

  static bool Fuller(const Bin& a, const Bin& b) { return a.load > b.load; }

  void Push(uint32_t partition) {
    const std::vector<Bin>& bins = partitions_[partition];
    const Load emptiest = bins.size() < ranks_ ? 0 : bins.back().load;
    queue_.push({bins.front().load - emptiest, age_++, partition});
  }
  uint32_t Pop() {
    const uint32_t partition = queue_.top().partition;
    queue_.pop();
    return partition;
  }

  // Both fullest bin first, `into` with at least as many: the fullest of `from` joins the emptiest of `into`,
  // empty bins before all others.
  void Merge(std::vector<Bin>& into, std::vector<Bin>& from) {
    const size_t joined = into.size() + from.size() > ranks_ ? into.size() + from.size() - ranks_ : 0;
    // The fullest of `from` take the empty bins, the rest the emptiest of the stored ones.
    const size_t alone = from.size() - joined;
    const size_t kept = into.size() - joined;
    std::vector<Bin> changed(from.begin(), from.begin() + static_cast<ptrdiff_t>(alone));
    for (size_t i = 0; i < joined; ++i) changed.push_back(Join(into[into.size() - 1 - i], from[alone + i]));
    std::stable_sort(changed.begin(), changed.end(), Fuller);
    into.resize(kept);
    const auto first = std::upper_bound(into.begin(), into.end(), changed.front(), Fuller) - into.begin();
    into.insert(into.end(), changed.begin(), changed.end());
    std::inplace_merge(into.begin() + first, into.begin() + static_cast<ptrdiff_t>(kept), into.end(), Fuller);
  }

  Bin Join(const Bin& a, const Bin& b) {
    next_[a.tail] = b.head;
    return {a.load + b.load, a.head, b.tail};
  }

  const std::span<const Load> cost_;
  const size_t ranks_;
  std::vector<uint32_t> next_;  // [units]
  std::vector<std::vector<Bin>> partitions_;
  std::priority_queue<Entry> queue_;
  uint32_t age_ = 0;
};

}  // namespace

std::vector<uint32_t> KarmarkarKarp(const BalanceProblem& problem) {
  return Differencing(problem.cost, problem.ranks->size())
      .Run(problem.equal_counts ? problem.ranks->size() : 1);
}

}  // namespace evenkeel::reorder
