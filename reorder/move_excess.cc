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

// What leaves a rank, and what comes back for it; kNowhere: nothing.
struct Move {
  uint32_t give = kNowhere;
  uint32_t get = kNowhere;
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
        rank_(problem.cost.size(), kNowhere),
        least_(LeastDearestRank(problem.cost, ranks_.size(), problem.tolerance)) {}

  std::vector<uint32_t> Run() {
    StayHome();
    if (homeless_ > 0) DealHomeless();
    // Items may be too coarse for the tolerance: what it could not settle is settled at somewhat more, and so
    // on. The fewer the ranks, the coarser the steps.
    const double growth = ranks_.size() > kMostRegrouped ? 1.25 : 2;
    for (double tolerance = problem_.tolerance; tolerance < 1; tolerance *= growth) {
      cap_ = least_ + static_cast<Load>(static_cast<double>(least_) * tolerance);
      if (*std::max_element(load_.begin(), load_.end()) <= cap_) break;
      for (uint32_t n = 0; n + 1 < ranks_.on_node_begin.size(); ++n) MoveWithin(ranks_.OnNode(n));
      MoveBetweenNodes();
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (load_[r] > cap_) Regroup(r);
      }
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

  // The items of a rank, dearest first. Few ranks are ever looked at: what is on which rank is sorted out
  // when the first one is, and each rank's items are listed when it is.
  std::vector<uint32_t>& Items(uint32_t rank) {
    if (items_.empty()) SortByRank();
    std::vector<uint32_t>& items = items_[rank];
    if (!listed_[rank]) {
      listed_[rank] = true;
      const std::span<const uint32_t> before = by_rank_.of(rank);
      items.reserve(before.size() + 1);
      items.assign(before.begin(), before.end());
      std::sort(items.begin(), items.end(), [&](uint32_t a, uint32_t b) { return Dearer(a, b); });
    }
    return items;
  }

  void SortByRank() {
    items_.resize(ranks_.size());
    listed_.resize(ranks_.size());
    by_rank_ = ByRank(rank_, ranks_.size(), workspace_.Take<uint32_t>(rank_.size()));
  }

  bool Dearer(uint32_t a, uint32_t b) const {
    return std::pair(problem_.cost[b], a) < std::pair(problem_.cost[a], b);
  }

  // The dearest item of a rank that costs at most `most`.
  std::optional<uint32_t> DearestUpTo(uint32_t rank, Load most) {
    const auto& items = Items(rank);
    auto it = std::lower_bound(items.begin(), items.end(), most,
                               [&](uint32_t i, Load bound) { return problem_.cost[i] > bound; });
    if (it == items.end()) return std::nullopt;
    return *it;
  }
  // The cheapest item of a rank that costs at least `least`.
  std::optional<uint32_t> CheapestFrom(uint32_t rank, Load least) {
    const auto& items = Items(rank);
    auto it = std::lower_bound(items.begin(), items.end(), least,
                               [&](uint32_t i, Load bound) { return problem_.cost[i] >= bound; });
    if (it == items.begin()) return std::nullopt;
    return *(it - 1);
  }

  // The best move of at most `room`, for a rank that is `excess` too much: just enough, else as much as
  // possible.
  std::optional<Move> BestMove(uint32_t giver, uint32_t taker, Load excess, Load room) {
    Move best;
    const auto consider = [&](uint32_t give, uint32_t get) {
      const Load amount = problem_.cost[give] - (get == kNowhere ? 0 : problem_.cost[get]);
      if (amount <= 0 || amount > room) return;
      const bool enough = amount >= excess, had_enough = best.amount >= excess;
      const bool better = enough != had_enough ? enough
                          : enough             ? amount < best.amount
                                               : amount > best.amount;
      if (better) best = {give, get, amount};
    };
    if (auto item = CheapestFrom(giver, excess)) consider(*item, kNowhere);
    if (auto item = DearestUpTo(giver, std::min(excess, room))) consider(*item, kNowhere);
    // An exchange only where no single item is about right.
    if (best.amount < excess || best.amount > 2 * excess) {
      for (uint32_t give : Items(giver)) {
        if (auto get = DearestUpTo(taker, problem_.cost[give] - excess)) consider(give, *get);
        if (auto get = CheapestFrom(taker, problem_.cost[give] - std::min(excess, room)))
          consider(give, *get);
      }
    }
    if (best.amount <= 0) return std::nullopt;
    return best;
  }

  void Apply(uint32_t giver, uint32_t taker, const Move& move) {
    Carry(move.give, giver, taker);
    if (move.get != kNowhere) Carry(move.get, taker, giver);
  }
  void Carry(uint32_t item, uint32_t from, uint32_t to) {
    const auto dearer = [&](uint32_t a, uint32_t b) { return Dearer(a, b); };
    std::vector<uint32_t>&source = Items(from), &target = Items(to);
    source.erase(std::lower_bound(source.begin(), source.end(), item, dearer));
    target.insert(std::lower_bound(target.begin(), target.end(), item, dearer), item);
    load_[from] -= problem_.cost[item];
    load_[to] += problem_.cost[item];
    rank_[item] = to;
  }

  // Levels one node's ranks as far as their own room allows.
  void MoveWithin(std::span<const uint32_t> here) {
    std::vector<uint32_t> open(here.begin(), here.end());
    for (size_t steps = kStepsPerRank * here.size(); steps > 0 && !open.empty(); --steps) {
      const auto giver = std::max_element(open.begin(), open.end(), [&](uint32_t a, uint32_t b) {
        return load_[a] != load_[b] ? load_[a] < load_[b] : a > b;
      });
      if (load_[*giver] <= cap_) return;
      if (!GiveWithin(*giver, here)) open.erase(giver);
    }
  }

  bool GiveWithin(uint32_t giver, std::span<const uint32_t> here) {
    std::vector<std::pair<Load, uint32_t>> takers;
    for (uint32_t r : here) {
      if (load_[r] < cap_) takers.emplace_back(load_[r], r);
    }
    std::sort(takers.begin(), takers.end());
    for (const auto& [load, taker] : takers) {
      if (auto move = BestMove(giver, taker, load_[giver] - cap_, cap_ - load)) {
        Apply(giver, taker, *move);
        return true;
      }
    }
    return false;
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
    const auto here = ranks_.OnNode(ranks_.node[giver]);
    for (uint32_t r : here) takers.erase({load_[r], r});
    const bool given = GiveWithin(giver, here);
    for (uint32_t r : here) {
      if (load_[r] < cap_) takers.insert({load_[r], r});
    }
    return given;
  }

  bool GiveFar(uint32_t giver, std::set<std::pair<Load, uint32_t>>& takers) {
    uint32_t tries = kTakers;
    for (auto it = takers.begin(); it != takers.end() && tries > 0; ++it, --tries) {
      const uint32_t taker = it->second;
      const Load excess = load_[giver] - cap_, room = cap_ - load_[taker];
      std::optional<Move> move;
      if (auto item = DearestUpTo(giver, std::min(excess, room)); item && problem_.cost[*item] > 0) {
        move = Move{*item, kNowhere, problem_.cost[*item]};
      } else if (auto more = CheapestFrom(giver, excess);
                 problem_.homes_are_given && more && problem_.cost[*more] <= room) {
        // Somewhat too much, but one small item: an exchange sends two, and often large ones.
        move = Move{*more, kNowhere, problem_.cost[*more]};
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
    std::vector<uint32_t> items, beside;
    std::vector<Load> cost;
    for (uint32_t g = 0; g < group.size(); ++g) {
      for (uint32_t i : Items(group[g])) {
        items.push_back(i);
        beside.push_back(g);
        cost.push_back(problem_.cost[i]);
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
  std::vector<std::vector<uint32_t>> items_;  // of every rank that was looked at; see Items
  std::vector<bool> listed_;
  ByRank by_rank_;  // as it was before the first move
};

}  // namespace

std::vector<uint32_t> MoveExcess(const BalanceProblem& problem) {
  Workspace own(problem.cost.size() * sizeof(uint32_t));
  return Excess(problem, problem.workspace == nullptr ? own : *problem.workspace).Run();
}

}  // namespace evenkeel::reorder
