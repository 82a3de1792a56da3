// Two limits at once: the cost of a rank, which follows the square of the lengths, and the sum of its lengths, which must fit
// into memory. A placement that is even in cost may have too many short units on a rank without long ones. So several
// placements are made to keep the capacity, then evened out by exchanges that keep it, and the most even one is taken.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "reorder/balance/balance_without_moving.h"
#include "reorder/balance/exchanges.h"

namespace evenkeel::reorder {
namespace {

class Capacity {
 public:
  explicit Capacity(const BalanceProblem& problem)
      : problem_(problem),
        size_(problem.length.begin(), problem.length.end()),
        most_(static_cast<Load>(std::min<uint64_t>(problem.capacity, INT64_MAX))),
        by_size_(problem) {
    by_size_.cost = size_;
    by_size_.taken = nullptr;
  }
  Capacity(const Capacity&) = delete;

  bool IsKept(std::span<const uint32_t> rank) const { return HeaviestRank(by_size_, rank) <= most_; }

  // The most even of the placements that keep the capacity; `rank` if none does.
  std::vector<uint32_t> Keep(std::vector<uint32_t> rank) {
    best_ = rank;
    Consider(std::move(rank), {});
    if (is_kept_ && least_ <= CapOf(problem_)) return best_;  // what had to move is little
    BalanceProblem free = problem_;
    free.co_balanced = {size_};
    free.co_balanced_stay = true;
    if (!problem_.equal_counts) Consider(BringHome(problem_, PlaceJointly(free)), kDefaultAlgorithm);
    for (const std::string_view method : kSimpleMethods) {
      Consider(BringHome(problem_, FindBalancer(method)->assign(by_size_)), method);
    }
    return std::move(best_);
  }

 private:
  // Of `method`; empty: of the one that the problem has named already.
  void Consider(std::vector<uint32_t> rank, std::string_view method) {
    const uint32_t ranks = problem_.ranks->size();
    ExchangeLimits limits{.enough = most_,
                          .keep_counts = problem_.equal_counts,
                          .nodes = problem_.ItemsHaveHomes() ? problem_.ranks : nullptr};
    EvenOut(size_, ranks, limits, rank);
    if (!IsKept(rank)) return;
    limits.enough = problem_.tolerance == 0 ? MinHeaviestRank(problem_.cost, ranks, 0) : CapOf(problem_);
    limits.size = size_;
    limits.capacity = most_;
    EvenOut(problem_.cost, ranks, limits, rank);
    const Load heaviest = HeaviestRank(problem_, rank);
    if (is_kept_ && heaviest >= least_) return;
    is_kept_ = true;
    least_ = heaviest;
    best_ = std::move(rank);
    if (!method.empty()) problem_.Take(method);
  }

  const BalanceProblem& problem_;
  const std::vector<Load> size_;  // [units]
  const Load most_;
  BalanceProblem by_size_;  // whose cost is the size
  std::vector<uint32_t> best_;
  bool is_kept_ = false;
  Load least_ = 0;  // the heaviest rank of the best placement that keeps the capacity
};

}  // namespace

std::vector<uint32_t> KeepCapacity(const BalanceProblem& problem, std::vector<uint32_t> rank) {
  if (problem.capacity == 0 || rank.empty()) return rank;
  Capacity capacity(problem);
  return capacity.IsKept(rank) ? rank : capacity.Keep(std::move(rank));
}

}  // namespace evenkeel::reorder
