// Our own method. A row travels from the encoder to the llm only if its item leaves its home rank, so as
// little as possible leaves: ranks above a cap give items, ranks below it take them, first within a node,
// then between nodes. If no item fits, two items are exchanged.
//
// All costs are integers (Scale in balance.h), so sums are exact and the result does not depend on the order
// of additions.
#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "reorder/balance/balance_without_moving.h"
#include "reorder/balance/exchanges.h"
#include "reorder/by_rank.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kTakers = 64;        // ranks of other nodes tried per move
constexpr uint32_t kStepsPerRank = 64;  // moves per rank within its node, and again between nodes

// The items of a rank, heaviest first.
struct List {
  std::vector<CostedUnit> items;
  bool is_filled = false;

  // The heaviest item that costs at most `limit`, or no item.
  CostedUnit HeaviestUpTo(Load limit) const {
    const auto it = std::partition_point(items.begin(), items.end(),
                                         [&](const CostedUnit& held) { return held.cost > limit; });
    return it == items.end() ? CostedUnit() : *it;
  }
  // The lightest item that costs at least `limit`, or no item.
  CostedUnit LightestFrom(Load limit) const {
    const auto it = std::partition_point(items.begin(), items.end(),
                                         [&](const CostedUnit& held) { return held.cost >= limit; });
    return it == items.begin() ? CostedUnit() : *(it - 1);
  }
  void Remove(const CostedUnit& held) { items.erase(std::lower_bound(items.begin(), items.end(), held)); }
  void Add(const CostedUnit& held) { items.insert(std::lower_bound(items.begin(), items.end(), held), held); }
};

// An item that leaves a rank, the item that comes back for it, and the difference of their costs.
struct Move {
  CostedUnit give;
  CostedUnit get;
  Load amount = 0;
};

class Excess {
 public:
  explicit Excess(const BalanceProblem& problem)
      : problem_(problem),
        ranks_(*problem.ranks),
        load_(ranks_.size(), 0),
        rank_(problem.cost.size()),
        cap_(CapOf(problem)),
        lists_(ranks_.size()) {}

  std::vector<uint32_t> Run() {
    PlaceOnHomeRanks();
    if (without_home_ > 0) PlaceWithoutHomeRank();
    Shed();
    if (*std::max_element(load_.begin(), load_.end()) > cap_) {
      items_by_rank_ = UnitsByRank(rank_, ranks_.size());
      for (uint32_t n = 0; n + 1 < ranks_.on_node_begin.size(); ++n) MoveWithin(ranks_.OnNode(n));
      EvenOutWithinNodes();
      MoveBetweenNodes();
    }
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

  // The moves below give one item at a time. A rank that would need too many of them, since a sample there has hundreds of
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
      gives[r] = excess * count[r] > static_cast<double>(load_[r]) * (kStepsPerRank / 2);
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

  // The items of a rank, sorted on first use: most ranks neither give nor take.
  List& Items(uint32_t rank) {
    List& list = lists_[rank];
    if (std::exchange(list.is_filled, true)) return list;
    for (uint32_t item : items_by_rank_[rank]) list.items.push_back({problem_.cost[item], item});
    std::sort(list.items.begin(), list.items.end());
    return list;
  }

  // The best move of at most `room` for a rank that is `excess` above the cap: just enough, else as much as
  // possible.
  std::optional<Move> BestMove(uint32_t giver, uint32_t taker, Load excess, Load room) {
    const Load part = std::min(excess, room);
    Move best;
    const auto consider = [&](const CostedUnit& give, const CostedUnit& get) {
      const Load amount = give.cost - get.cost;
      if (amount <= 0 || amount > room) return;
      const bool enough = amount >= excess, had_enough = best.amount >= excess;
      const bool better = enough != had_enough ? enough
                          : enough             ? amount < best.amount
                                               : amount > best.amount;
      if (better) best = {give, get, amount};
    };
    consider(Items(giver).LightestFrom(excess), CostedUnit());
    consider(Items(giver).HeaviestUpTo(part), CostedUnit());
    if (best.amount >= excess && best.amount <= 2 * excess) return best;
    // An exchange, since no single item is about right: for every item the one in return that makes the
    // amount just enough, or the largest one of at most `part`. O(n log n) for n items of a rank.
    const List& theirs = Items(taker);
    for (const CostedUnit& give : Items(giver).items) {
      const CostedUnit enough = theirs.HeaviestUpTo(give.cost - excess);
      const CostedUnit less = theirs.LightestFrom(give.cost - part);
      if (enough.unit != kNowhere) consider(give, enough);
      if (less.unit != kNowhere) consider(give, less);
    }
    if (best.amount <= 0) return std::nullopt;
    return best;
  }

  void Apply(uint32_t giver, uint32_t taker, const Move& move) {
    Carry(move.give, giver, taker);
    if (move.get.unit != kNowhere) Carry(move.get, taker, giver);
  }
  void Carry(const CostedUnit& held, uint32_t from, uint32_t to) {
    Items(from).Remove(held);
    Items(to).Add(held);
    load_[from] -= held.cost;
    load_[to] += held.cost;
    rank_[held.unit] = to;
  }

  // Moves items among the ranks of one node, as far as these have room.
  void MoveWithin(std::span<const uint32_t> here) {
    std::vector<uint32_t> open(here.begin(), here.end());
    for (size_t steps = kStepsPerRank * here.size(); steps > 0 && !open.empty(); --steps) {
      const auto giver = std::max_element(open.begin(), open.end(), [&](uint32_t a, uint32_t b) {
        return load_[a] != load_[b] ? load_[a] < load_[b] : a > b;
      });
      if (load_[*giver] <= cap_) return;
      if (GiveWithin(*giver, here) == kNowhere) open.erase(giver);
    }
  }

  // Moves one item or exchange within a node. Returns the taker, or kNowhere if there is none.
  uint32_t GiveWithin(uint32_t giver, std::span<const uint32_t> here) {
    std::vector<std::pair<Load, uint32_t>> takers;  // (load, rank)
    for (uint32_t r : here) {
      if (load_[r] < cap_) takers.emplace_back(load_[r], r);
    }
    std::sort(takers.begin(), takers.end());
    for (const auto& [load, taker] : takers) {
      if (auto move = BestMove(giver, taker, load_[giver] - cap_, cap_ - load)) {
        Apply(giver, taker, *move);
        return taker;
      }
    }
    return kNowhere;
  }

  // What no single move or exchange within the cap could do, before anything leaves a node.
  void EvenOutWithinNodes() {
    if (ranks_.on_node_begin.size() <= 2) return;  // the caller does it for a single node
    if (*std::max_element(load_.begin(), load_.end()) <= cap_) return;
    EvenOut(problem_.cost, ranks_.size(), {.enough = cap_, .nodes = &ranks_, .stay_on_node = true}, rank_);
    std::fill(load_.begin(), load_.end(), 0);
    for (size_t i = 0; i < rank_.size(); ++i) load_[rank_[i]] += problem_.cost[i];
    items_by_rank_ = UnitsByRank(rank_, ranks_.size());
    lists_.assign(ranks_.size(), List());
  }

  // Moves the excess of ranks whose node has no room left to the ranks with the most room, in several pieces.
  void MoveBetweenNodes() {
    std::vector<uint32_t> givers;
    std::set<std::pair<Load, uint32_t>> takers;  // (load, rank)
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (load_[r] > cap_) givers.push_back(r);
      if (load_[r] < cap_) takers.insert({load_[r], r});
    }
    for (uint32_t giver : givers) {
      for (uint32_t steps = kStepsPerRank; steps > 0 && load_[giver] > cap_; --steps) {
        if (problem_.homes_are_given && GiveToNode(giver, takers)) continue;
        if (!GiveFar(giver, takers)) break;
      }
    }
  }

  // Tries the giver's own node again: a rank there may have given more than its excess and have room now.
  bool GiveToNode(uint32_t giver, std::set<std::pair<Load, uint32_t>>& takers) {
    const Load before = load_[giver];
    const uint32_t taker = GiveWithin(giver, ranks_.OnNode(ranks_.node[giver]));
    if (taker == kNowhere) return false;
    takers.erase({load_[taker] - (before - load_[giver]), taker});
    for (uint32_t r : {giver, taker}) {
      if (load_[r] < cap_) takers.insert({load_[r], r});
    }
    return true;
  }

  // Moves one item or exchange to another rank, trying those with the most room first. Returns false if none
  // fits.
  bool GiveFar(uint32_t giver, std::set<std::pair<Load, uint32_t>>& takers) {
    uint32_t tries = kTakers;
    for (auto it = takers.begin(); it != takers.end() && tries > 0; ++it, --tries) {
      const uint32_t taker = it->second;
      const Load excess = load_[giver] - cap_, room = cap_ - load_[taker];
      std::optional<Move> move;
      const List& mine = Items(giver);
      const CostedUnit part = mine.HeaviestUpTo(std::min(excess, room)), more = mine.LightestFrom(excess);
      if (part.cost > 0) {
        move = Move{part, CostedUnit(), part.cost};
      } else if (problem_.homes_are_given && more.unit != kNowhere && more.cost <= room) {
        // A single item that is somewhat more than the excess: an exchange would send two, which are often
        // large.
        move = Move{more, CostedUnit(), more.cost};
      } else {
        move = BestMove(giver, taker, excess, room);
      }
      if (!move) continue;
      takers.erase(it);
      Apply(giver, taker, *move);
      if (load_[taker] < cap_) takers.insert({load_[taker], taker});
      return true;
    }
    return false;
  }

  const BalanceProblem& problem_;
  const PhaseRanks& ranks_;
  std::vector<Load> load_;      // [ranks]
  std::vector<uint32_t> rank_;  // [items]
  const Load cap_;              // ranks up to this load are left unchanged
  size_t without_home_ = 0;
  std::vector<List> lists_;                           // of every rank; see Items
  std::vector<std::vector<uint32_t>> items_by_rank_;  // before the first move
};

}  // namespace

std::vector<uint32_t> MoveExcess(const BalanceProblem& problem) { return Excess(problem).Run(); }

}  // namespace evenkeel::reorder
