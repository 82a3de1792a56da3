// Ours. Balancing costs rows on the way from the encoder to the llm only where an item leaves home, so as
// little as possible leaves: ranks above the cap give, ranks below it take up to the cap, first among the
// ranks of a node, then between nodes. Where no item fits, two items change places.
#include "reorder/move_excess.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "reorder/by_rank.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kTakers = 64;  // ranks of other nodes that are tried for one move
constexpr uint32_t kStepsPerRank =
    64;  // moves that one rank may ask for among its neighbours, and again far away

constexpr uint32_t kMostRegrouped = 32;     // ranks whose items are dealt out anew together
constexpr size_t kMostDealtAnew = 1 << 15;  // items of all such attempts; few steps need any

constexpr size_t kAhead = 8;    // items whose costs are asked for before they are read
constexpr size_t kBarren = 16;  // ranks of which another remembers that nothing can be exchanged with them

// An item on a rank; or none, which costs nothing.
struct Held {
  Load cost = 0;
  uint32_t item = kNowhere;

  // Dearest first.
  bool operator<(const Held& other) const {
    return cost != other.cost ? cost > other.cost : item < other.item;
  }
};

struct Barren {
  uint32_t taker = 0, got = 0, changed = 0;  // of List: what they were
};

// The items of a rank. Most ranks give or take one or two, which a walk finds: they are in order only where
// exchanges were sought.
struct List {
  std::vector<Held> items;
  std::vector<Barren> barren;
  uint32_t got = 0, changed = 0;  // how often
  bool listed = false, sorted = false;

  const std::vector<Held>& DearestFirst() {
    if (!sorted) std::sort(items.begin(), items.end());
    sorted = true;
    return items;
  }
  // The first, dearest first, that costs at most `most`; or none.
  Held DearestUpTo(Load most) const {
    if (sorted) {
      const auto it = std::partition_point(items.begin(), items.end(),
                                           [&](const Held& held) { return held.cost > most; });
      return it == items.end() ? Held() : *it;
    }
    const Held* best = nullptr;
    for (const Held& held : items) {
      if (held.cost <= most && (best == nullptr || held < *best)) best = &held;
    }
    return best == nullptr ? Held() : *best;
  }
  // The last, dearest first, that costs at least `least`; or none.
  Held CheapestFrom(Load least) const {
    if (sorted) {
      const auto it = std::partition_point(items.begin(), items.end(),
                                           [&](const Held& held) { return held.cost >= least; });
      return it == items.begin() ? Held() : *(it - 1);
    }
    const Held* best = nullptr;
    for (const Held& held : items) {
      if (held.cost >= least && (best == nullptr || *best < held)) best = &held;
    }
    return best == nullptr ? Held() : *best;
  }
  void Remove(const Held& held) {
    ++changed;
    const auto it =
        sorted ? std::lower_bound(items.begin(), items.end(), held)
               : std::find_if(items.begin(), items.end(), [&](const Held& h) { return h.item == held.item; });
    items.erase(it);
  }
  void Add(const Held& held) {
    ++changed, ++got;
    items.insert(sorted ? std::lower_bound(items.begin(), items.end(), held) : items.end(), held);
  }
};

// What leaves a rank, and what comes back for it.
struct Move {
  Held give;
  Held get;
  Load amount = 0;
};

class Excess {
 public:
  Excess(const BalanceProblem& problem, Workspace& workspace)
      : problem_(problem),
        ranks_(*problem.ranks),
        scope_(workspace),
        workspace_(workspace),
        load_(ranks_.size(), 0),
        least_(LeastDearestRank(problem.cost, ranks_.size(), problem.tolerance)) {
    ResizeToWrite(rank_, problem.cost.size());
  }

  std::vector<uint32_t> Run() {
    StayHome();
    if (homeless_ > 0) DealHomeless();
    // Items may be too coarse for the tolerance: what it could not settle is settled at somewhat more, and so
    // on. The fewer the ranks, the coarser the steps.
    const double growth = ranks_.size() > kMostRegrouped ? 1.25 : 2;
    double tolerance = problem_.tolerance;
    while (tolerance < 1) {
      cap_ = least_ + static_cast<Load>(static_cast<double>(least_) * tolerance);
      if (*std::max_element(load_.begin(), load_.end()) <= cap_) break;
      for (List& list : lists_) list.barren.clear();  // there is more room now
      for (uint32_t n = 0; n + 1 < ranks_.on_node_begin.size(); ++n) MoveWithin(ranks_.OnNode(n));
      MoveBetweenNodes();
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (load_[r] > cap_) Regroup(r);
      }
      tolerance *= growth;
    }
    return std::move(rank_);
  }

 private:
  void StayHome() {
    Load* const load = load_.data();
    for (size_t i = 0; i < rank_.size(); ++i) {
      const uint32_t home = problem_.HomeRank(i);
      rank_[i] = home;
      if (home == kNowhere) {
        ++homeless_;
      } else {
        load[home] += problem_.cost[i];
      }
    }
  }

  // Dearest first, each to the rank of its node that has least; those of no node then over all ranks.
  void DealHomeless() {
    const std::vector<uint32_t> order = DearestFirst(problem_.cost);
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
    std::set<std::pair<std::pair<Load, uint32_t>, uint32_t>> least;  // ((load, units), rank)
    for (uint32_t r = 0; r < ranks_.size(); ++r) least.insert({{load_[r], units[r]}, r});
    for (uint32_t i : order) {
      if (rank_[i] != kNowhere) continue;
      auto node = least.extract(least.begin());
      const uint32_t r = node.value().second;
      put(i, r);
      node.value().first = {load_[r], units[r]};
      least.insert(std::move(node));
    }
  }

  // The items of a rank. What is on which rank is sorted out when the first one is looked at, and each rank's
  // items are listed when it is.
  List& Items(uint32_t rank) {
    if (lists_.empty()) {
      lists_.resize(ranks_.size());
      by_rank_ = ChainedByRank(rank_, ranks_.size(), workspace_.Take<uint32_t>(rank_.size()));
    }
    List& list = lists_[rank];
    if (!list.listed) {
      list.listed = true;
      const std::span<const uint32_t> before = by_rank_.of(rank);
      list.items.reserve(before.size() + 4);
      for (size_t k = 0; k < before.size(); ++k) {
        if (k + kAhead < before.size()) __builtin_prefetch(&problem_.cost[before[k + kAhead]]);
        list.items.push_back({problem_.cost[before[k]], before[k]});
      }
    }
    return list;
  }

  // The best move of at most `room`, for a rank that is `excess` too much: just enough, else as much as
  // possible.
  std::optional<Move> BestMove(uint32_t giver, uint32_t taker, Load excess, Load room) {
    const Load part = std::min(excess, room);
    Move best;
    const auto consider = [&](const Held& give, const Held& get) {
      const Load amount = give.cost - get.cost;
      if (amount <= 0 || amount > room) return;
      const bool enough = amount >= excess, had_enough = best.amount >= excess;
      const bool better = enough != had_enough ? enough
                          : enough             ? amount < best.amount
                                               : amount > best.amount;
      if (better) best = {give, get, amount};
    };
    consider(Items(giver).CheapestFrom(excess), Held());
    consider(Items(giver).DearestUpTo(part), Held());
    // An exchange only where no single item is about right. The cheaper what is given, the cheaper what comes
    // back for it: both are walked once.
    if ((best.amount < excess || best.amount > 2 * excess) && !IsBarren(giver, taker)) {
      const std::vector<Held>& theirs = Items(taker).DearestFirst();
      const Held *const begin = theirs.data(), *const end = begin + theirs.size();
      const Held *enough = begin, *less = begin;
      // The least amount that is enough, and the largest that is not more than the part.
      Held enough_give, enough_get, less_give, less_get;
      Load least = room + 1, most = 0;
      for (const Held& give : Items(giver).DearestFirst()) {
        while (enough < end && enough->cost > give.cost - excess) ++enough;
        while (less < end && less->cost >= give.cost - part) ++less;
        if (enough < end && give.cost - enough->cost < least) {
          least = give.cost - enough->cost;
          enough_give = give, enough_get = *enough;
        }
        if (less > begin && give.cost - less[-1].cost > most) {
          most = give.cost - less[-1].cost;
          less_give = give, less_get = less[-1];
        }
      }
      if (least <= room) consider(enough_give, enough_get);
      if (most > 0) consider(less_give, less_get);
      if (best.amount <= 0) SetBarren(giver, taker);
    }
    if (best.amount <= 0) return std::nullopt;
    return best;
  }

  // Where nothing can be exchanged, because no two items differ by so little as the taker has room, that
  // stays so until the giver gets something or the taker changes.
  bool IsBarren(uint32_t giver, uint32_t taker) const {
    for (const Barren& barren : lists_[giver].barren) {
      if (barren.taker != taker) continue;
      return barren.got == lists_[giver].got && barren.changed == lists_[taker].changed;
    }
    return false;
  }
  void SetBarren(uint32_t giver, uint32_t taker) {
    std::vector<Barren>& known = lists_[giver].barren;
    auto it = std::find_if(known.begin(), known.end(), [&](const Barren& b) { return b.taker == taker; });
    if (it == known.end()) {
      if (known.size() == kBarren) known.clear();
      it = known.emplace(known.end());
    }
    *it = {taker, lists_[giver].got, lists_[taker].changed};
  }

  void Apply(uint32_t giver, uint32_t taker, const Move& move) {
    Carry(move.give, giver, taker);
    if (move.get.item != kNowhere) Carry(move.get, taker, giver);
  }
  void Carry(const Held& held, uint32_t from, uint32_t to) {
    Items(from).Remove(held);
    Items(to).Add(held);
    load_[from] -= held.cost;
    load_[to] += held.cost;
    rank_[held.item] = to;
  }

  // Levels one node's ranks as far as their own room allows.
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

  // The rank that takes something, or kNowhere.
  uint32_t GiveWithin(uint32_t giver, std::span<const uint32_t> here) {
    takers_here_.clear();
    for (uint32_t r : here) {
      if (load_[r] < cap_) takers_here_.emplace_back(load_[r], r);
    }
    std::sort(takers_here_.begin(), takers_here_.end());
    for (const auto& [load, taker] : takers_here_) {
      if (auto move = BestMove(giver, taker, load_[giver] - cap_, cap_ - load)) {
        Apply(giver, taker, *move);
        return taker;
      }
    }
    return kNowhere;
  }

  // What a whole node has too much goes to the ranks with most room, in pieces that add up to the excess.
  void MoveBetweenNodes() {
    std::vector<uint32_t> givers;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (load_[r] > cap_) givers.push_back(r);
    }
    if (givers.empty()) return;
    std::set<std::pair<Load, uint32_t>> takers;  // (load, rank)
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (load_[r] < cap_) takers.insert({load_[r], r});
    }
    for (uint32_t giver : givers) {
      for (uint32_t steps = kStepsPerRank; steps > 0 && load_[giver] > cap_; --steps) {
        if (problem_.homes_are_given && GiveToNode(giver, takers)) continue;
        if (!GiveFar(giver, takers)) break;
      }
    }
  }

  // A neighbour of the giver gave too much and has room now: that is nearer than another node.
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

  bool GiveFar(uint32_t giver, std::set<std::pair<Load, uint32_t>>& takers) {
    uint32_t tries = kTakers;
    for (auto it = takers.begin(); it != takers.end() && tries > 0; ++it, --tries) {
      const uint32_t taker = it->second;
      const Load excess = load_[giver] - cap_, room = cap_ - load_[taker];
      std::optional<Move> move;
      const List& mine = Items(giver);
      const Held part = mine.DearestUpTo(std::min(excess, room)), more = mine.CheapestFrom(excess);
      if (part.cost > 0) {
        move = Move{part, Held(), part.cost};
      } else if (problem_.homes_are_given && more.item != kNowhere && more.cost <= room) {
        // Somewhat too much, but one small item: an exchange sends two, and often large ones.
        move = Move{more, Held(), more.cost};
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

  // Where neither a move nor an exchange is left: the items of the rank and of those with most room are dealt
  // out anew, among as few ranks as will do. With no more ranks than that it would be all of them.
  void Regroup(uint32_t giver) {
    if (ranks_.size() <= kMostRegrouped || dealt_anew_ >= kMostDealtAnew) return;
    std::vector<uint32_t> others;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (r != giver) others.push_back(r);
    }
    std::partial_sort(
        others.begin(), others.begin() + kMostRegrouped, others.end(),
        [&](uint32_t a, uint32_t b) { return std::pair(load_[a], a) < std::pair(load_[b], b); });
    for (uint32_t size = 2; size <= kMostRegrouped; size *= 2) {
      std::vector<uint32_t> group(others.begin(), others.begin() + size - 1);
      group.push_back(giver);
      if (DealAnew(group)) return;
    }
  }

  // True where all of the group are then within the cap; else nothing changes.
  bool DealAnew(const std::vector<uint32_t>& group) {
    std::vector<Held> items;
    std::vector<uint32_t> beside;
    std::vector<Load> cost;
    for (uint32_t g = 0; g < group.size(); ++g) {
      for (const Held& held : Items(group[g]).DearestFirst()) {
        items.push_back(held);
        beside.push_back(g);
        cost.push_back(held.cost);
      }
    }
    dealt_anew_ += items.size();
    PhaseRanks ranks;
    ranks.global = group;
    Neighbours neighbours;
    for (uint32_t g = 0; g < group.size(); ++g) neighbours.beside.push_back(g);
    const BalanceProblem anew{.ranks = &ranks, .cost = cost, .neighbours = &neighbours, .home = beside};
    const std::vector<uint32_t> dealt = BringHome(anew, KarmarkarKarp().Assign(anew));
    if (DearestRank(anew, dealt) > cap_) return false;
    for (size_t k = 0; k < items.size(); ++k) {
      if (dealt[k] != beside[k]) Carry(items[k], group[beside[k]], group[dealt[k]]);
    }
    return true;
  }

  const BalanceProblem& problem_;
  const PhaseRanks& ranks_;
  const Workspace::Scope scope_;
  Workspace& workspace_;
  std::vector<Load> load_;      // [ranks]
  std::vector<uint32_t> rank_;  // [items]
  const Load least_;            // that the most loaded rank can have
  Load cap_ = 0;                // up to which a rank is left alone
  size_t homeless_ = 0;
  size_t dealt_anew_ = 0;
  std::vector<List> lists_;                             // of every rank; see Items
  ChainedByRank by_rank_;                               // as it was before the first move
  std::vector<std::pair<Load, uint32_t>> takers_here_;  // (load, rank) of one node
};

}  // namespace

std::vector<uint32_t> MoveExcess(const BalanceProblem& problem) {
  Workspace own(problem.cost.size() * sizeof(uint32_t));
  return Excess(problem, problem.workspace == nullptr ? own : *problem.workspace).Run();
}

}  // namespace evenkeel::reorder
