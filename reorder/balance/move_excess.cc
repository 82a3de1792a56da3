// Our own method. A row travels from the encoder to the llm only if its item leaves its home rank, so as
// little as possible leaves: ranks above a cap give items, ranks below it on the same node take them (exchanges.h). What a
// node cannot take leaves it afterwards, as for every placement that is above its tolerance.
//
// All costs are integers (Scale in balance.h), so sums are exact and the result does not depend on the order
// of additions.
#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "reorder/balance/balance_without_moving.h"
#include "reorder/balance/exchanges.h"

namespace evenkeel::reorder {
namespace {

constexpr double kManyItems = 32;  // of mean cost that a rank has too much

class Excess {
 public:
  explicit Excess(const BalanceProblem& problem)
      : problem_(problem),
        ranks_(*problem.ranks),
        load_(ranks_.size(), 0),
        rank_(problem.cost.size()),
        cap_(CapOf(problem)) {}

  std::vector<uint32_t> Run() {
    PlaceOnHomeRanks();
    if (without_home_ > 0) PlaceWithoutHomeRank();
    Shed();
    if (*std::max_element(load_.begin(), load_.end()) <= cap_) return std::move(rank_);
    EvenOut(problem_.cost, ranks_.size(), {.enough = cap_, .nodes = &ranks_, .stay_on_node = true}, rank_);
    return std::move(rank_);
  }

 private:
  void PlaceOnHomeRanks() {
    for (size_t i = 0; i < rank_.size(); ++i) {
      rank_[i] = problem_.HomeRank(i);
      if (rank_[i] == kNowhere) {
        ++without_home_;
      } else {
        load_[rank_[i]] += problem_.cost[i];
      }
    }
  }

  // Places items without a home rank, heaviest first: on the least loaded rank of their node; items without a
  // node afterwards, on the least loaded rank of all.
  void PlaceWithoutHomeRank() {
    const std::vector<uint32_t> order = HeaviestFirst(problem_.cost);
    std::vector<uint32_t> units(ranks_.size(), 0);
    const auto put = [&](uint32_t i, uint32_t r) {
      rank_[i] = r;
      load_[r] += problem_.cost[i];
      ++units[r];
    };
    for (uint32_t i : order) {
      if (rank_[i] != kNowhere || problem_.HomeNode(i) == kNowhere) continue;
      const auto here = ranks_.OnNode(problem_.HomeNode(i));
      put(i, *std::min_element(here.begin(), here.end(), [&](uint32_t a, uint32_t b) {
            return std::pair(load_[a], units[a]) < std::pair(load_[b], units[b]);
          }));
    }
    using Entry = std::tuple<Load, uint32_t, uint32_t>;  // (load, units, rank)
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> least;
    for (uint32_t r = 0; r < ranks_.size(); ++r) least.push({load_[r], units[r], r});
    for (uint32_t i : order) {
      if (rank_[i] != kNowhere) continue;
      const uint32_t r = std::get<2>(least.top());
      least.pop();
      put(i, r);
      least.push({load_[r], units[r], r});
    }
  }

  // Exchanges give one item at a time. A rank that would need too many of them, since a sample there has hundreds of
  // items, keeps its heaviest items up to the cap; the others are placed heaviest first: on the rank with the least load of
  // the same node while it stays within the cap, else on the one with the least load of all. O(n log n).
  void Shed() {
    std::vector<uint32_t> count(ranks_.size(), 0);
    for (uint32_t r : rank_) ++count[r];
    std::vector<bool> gives(ranks_.size(), false);
    bool any = false;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      const double excess = static_cast<double>(load_[r] - cap_);
      // The items that are too much, by their mean cost.
      gives[r] = excess * count[r] > static_cast<double>(load_[r]) * kManyItems;
      any |= gives[r];
    }
    if (!any) return;
    std::vector<uint32_t> left;  // heaviest first
    std::fill(load_.begin(), load_.end(), 0);
    for (uint32_t i : HeaviestFirst(problem_.cost)) {
      const uint32_t r = rank_[i];
      if (gives[r] && load_[r] + problem_.cost[i] > cap_) {
        left.push_back(i);
      } else {
        load_[r] += problem_.cost[i];
      }
    }
    PlaceNearby(left);
  }

  void PlaceNearby(const std::vector<uint32_t>& items) {
    using Ranks = std::set<std::pair<Load, uint32_t>>;  // (load, rank)
    std::vector<Ranks> on_node(ranks_.on_node_begin.size() - 1);
    Ranks all;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      on_node[ranks_.node[r]].insert({load_[r], r});
      all.insert({load_[r], r});
    }
    for (uint32_t i : items) {
      auto [load, r] = *on_node[ranks_.node[rank_[i]]].begin();
      if (load + problem_.cost[i] > cap_) std::tie(load, r) = *all.begin();
      for (Ranks* ranks : {&on_node[ranks_.node[r]], &all}) {
        ranks->erase({load, r});
        ranks->insert({load + problem_.cost[i], r});
      }
      load_[r] += problem_.cost[i];
      rank_[i] = r;
    }
  }

  const BalanceProblem& problem_;
  const PhaseRanks& ranks_;
  std::vector<Load> load_;      // [ranks]
  std::vector<uint32_t> rank_;  // [items]
  const Load cap_;              // ranks up to this load are left unchanged
  size_t without_home_ = 0;
};

}  // namespace

std::vector<uint32_t> MoveExcess(const BalanceProblem& problem) { return Excess(problem).Run(); }

}  // namespace evenkeel::reorder
