// Local search on the heaviest rank. It gives one unit to a light rank and gets a lighter one, or none, in return. If that
// leaves both ranks light enough, the pair of the least cost is taken, since what is exchanged must travel; else the pair
// that leaves the heavier of the two lightest: its difference comes nearest to half the difference of the loads. Costs are
// integers, so that the result does not depend on the order of additions.
#include "reorder/balance/exchanges.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kPartners = 8;       // light ranks tried per step before all others
constexpr uint32_t kTakers = 64;        // ranks of other nodes tried per move
constexpr uint32_t kStepsPerRank = 64;  // and kFewestSteps more
constexpr uint32_t kFewestSteps = 256;  // for few ranks, whose steps are cheap

struct Exchange {
  uint32_t partner = kNowhere;
  CostedUnit give;
  std::vector<CostedUnit> get;  // in return; may be empty
  Load heavier = 0;  // the load of the heavier of the two ranks afterwards, or what is enough if that is more
  Load moved = 0;    // the cost of all these units

  bool BetterThan(const Exchange& other) const {
    return heavier != other.heavier ? heavier < other.heavier : moved < other.moved;
  }
};

class Search {
 public:
  Search(std::span<const Load> cost, uint32_t ranks, const ExchangeLimits& limits, std::span<uint32_t> rank)
      : limits_(limits), rank_(rank), units_(ranks), sorted_(ranks, false), load_(ranks, 0), held_(ranks, 0) {
    for (uint32_t i = 0; i < rank.size(); ++i) {
      units_[rank[i]].push_back({cost[i], i});
      load_[rank[i]] += cost[i];
      held_[rank[i]] += SizeOf({cost[i], i});
    }
    for (uint32_t r = 0; r < ranks; ++r) by_load_.insert({load_[r], r});
  }

  void Run() {
    for (uint64_t steps = uint64_t{kStepsPerRank} * units_.size() + kFewestSteps; steps > 0; --steps) {
      if (by_load_.empty() || by_load_.rbegin()->first <= limits_.enough) return;
      const uint32_t heaviest = by_load_.rbegin()->second;
      const Exchange best = BestFor(heaviest);
      if (best.partner != kNowhere) {
        Apply(heaviest, best);
      } else if (limits_.stay_on_node) {
        by_load_.erase({load_[heaviest], heaviest});  // the heaviest of another node may have one
      } else {
        return;
      }
    }
  }

 private:
  Exchange BestFor(uint32_t giver) {
    Exchange best{.heavier = load_[giver]};
    if (limits_.nodes != nullptr) {
      const auto here = limits_.nodes->OnNode(limits_.nodes->node[giver]);
      if (const Exchange move = MoveToNode(giver, here); move.partner != kNowhere) return move;
      for (uint32_t partner : here) Consider(giver, partner, best);
    }
    const bool found = best.partner != kNowhere;
    if (limits_.stay_on_node || (found && best.heavier <= limits_.enough)) {
      return found ? best : BestForSeveral(giver);
    }
    if (limits_.nodes != nullptr && !limits_.keep_counts) {
      if (const Exchange move = MoveToAnotherNode(giver); move.partner != kNowhere) return move;
    }
    uint32_t tried = 0;
    for (const auto& [load, partner] : by_load_) {
      if (best.partner != kNowhere && (tried >= kPartners || best.heavier <= limits_.enough)) break;
      ++tried;
      Consider(giver, partner, best);
    }
    return best.partner != kNowhere ? best : BestForSeveral(giver);
  }

  Load SizeOf(const CostedUnit& unit) const {
    return limits_.size.empty() || unit.unit == kNowhere ? 0 : limits_.size[unit.unit];
  }

  // Whether both ranks keep the capacity if the giver has `size` less and the partner has it more.
  bool Fits(uint32_t giver, uint32_t partner, Load size) const {
    return limits_.size.empty() ||
           (size >= 0 ? held_[partner] + size : held_[giver] - size) <= limits_.capacity;
  }

  // The lightest unit that is enough, if it is not much more and the lightest rank of the node has the room: what is needed
  // most often, found in O(log n).
  Exchange MoveToNode(uint32_t giver, std::span<const uint32_t> here) {
    const Load excess = load_[giver] - limits_.enough;
    const CostedUnit give = LightestFrom(giver, excess);
    const uint32_t taker = *std::min_element(here.begin(), here.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(load_[a], a) < std::pair(load_[b], b);
    });
    const bool fits = !limits_.keep_counts && give.cost <= 2 * excess &&
                      load_[taker] + give.cost <= limits_.enough && Fits(giver, taker, SizeOf(give));
    return give.unit != kNowhere && fits ? MakeExchange(giver, taker, give, give.cost) : Exchange();
  }

  // What leaves a node: the heaviest unit of at most the excess that a light rank has room for, else one that is somewhat
  // more than the excess. An exchange would send two units, which are often large.
  Exchange MoveToAnotherNode(uint32_t giver) {
    const Load excess = load_[giver] - limits_.enough;
    uint32_t tried = 0;
    for (const auto& [load, taker] : by_load_) {
      const Load room = limits_.enough - load;
      if (room <= 0 || tried++ == kTakers) break;
      CostedUnit give = HeaviestUpTo(giver, std::min(excess, room));
      if (give.cost == 0) give = LightestFrom(giver, excess);
      if (give.cost > 0 && give.cost <= room && Fits(giver, taker, SizeOf(give))) {
        return MakeExchange(giver, taker, give, give.cost);
      }
    }
    return {};
  }

  // The heaviest unit of a rank that costs at most `limit`, or none.
  CostedUnit HeaviestUpTo(uint32_t rank, Load limit) {
    const std::vector<CostedUnit>& units = Units(rank);
    const auto it = std::partition_point(units.begin(), units.end(),
                                         [&](const CostedUnit& unit) { return unit.cost > limit; });
    return it == units.end() ? CostedUnit() : *it;
  }
  // The lightest unit of a rank that costs at least `limit`, or none.
  CostedUnit LightestFrom(uint32_t rank, Load limit) {
    const std::vector<CostedUnit>& units = Units(rank);
    const auto it = std::partition_point(units.begin(), units.end(),
                                         [&](const CostedUnit& unit) { return unit.cost >= limit; });
    return it == units.begin() ? CostedUnit() : *(it - 1);
  }

  // Considers one unit for one or none.
  void Consider(uint32_t giver, uint32_t partner, Exchange& best) {
    const Load gap = load_[giver] - load_[partner], excess = load_[giver] - limits_.enough;
    if (gap <= 0) return;
    const auto consider = [&](const CostedUnit& give, const CostedUnit& get) {
      const Load amount = give.cost - get.cost;
      if (amount <= 0 || amount >= gap || !Fits(giver, partner, SizeOf(give) - SizeOf(get))) return;
      Exchange exchange = MakeExchange(giver, partner, give, amount);
      if (!exchange.BetterThan(best)) return;
      if (get.unit != kNowhere) exchange.get = {get};
      best = std::move(exchange);
    };
    for (const CostedUnit& give : Units(giver)) {
      if (!limits_.keep_counts) consider(give, CostedUnit());
      const std::span<const CostedUnit> fit = ThatFit(giver, partner, give);
      // In return: the two units around the cost that would halve the gap, and around the one that is just enough.
      for (const Load wanted : {give.cost - gap / 2, give.cost - excess}) {
        const auto lighter = std::partition_point(fit.begin(), fit.end(),
                                                  [&](const CostedUnit& unit) { return unit.cost > wanted; });
        if (lighter != fit.end()) consider(give, *lighter);
        if (lighter != fit.begin()) consider(give, *(lighter - 1));
      }
    }
  }

  // The partner's units with which both ranks keep the capacity. They are next to each other, since what is longer costs
  // more.
  std::span<const CostedUnit> ThatFit(uint32_t giver, uint32_t partner, const CostedUnit& give) {
    const std::vector<CostedUnit>& theirs = Units(partner);
    if (limits_.size.empty()) return theirs;
    const Load longest = limits_.capacity - held_[giver] + SizeOf(give);
    const Load shortest = held_[partner] + SizeOf(give) - limits_.capacity;
    const auto first = std::partition_point(theirs.begin(), theirs.end(),
                                            [&](const CostedUnit& unit) { return SizeOf(unit) > longest; });
    const auto last = std::partition_point(first, theirs.end(),
                                           [&](const CostedUnit& unit) { return SizeOf(unit) >= shortest; });
    return {first, last};
  }

  // A rank of few large units may have none to exchange for another one: the best exchange of one for several.
  Exchange BestForSeveral(uint32_t giver) {
    Exchange best{.heavier = load_[giver]};
    if (limits_.keep_counts) return best;
    std::vector<uint32_t> partners;
    if (limits_.stay_on_node) {
      const auto here = limits_.nodes->OnNode(limits_.nodes->node[giver]);
      partners.assign(here.begin(), here.end());
    }
    for (auto it = by_load_.begin(); !limits_.stay_on_node && it != by_load_.end(); ++it) {
      if (partners.size() == kPartners) break;
      partners.push_back(it->second);
    }
    for (uint32_t partner : partners) ConsiderSeveral(giver, partner, best);
    return best;
  }

  // In return for a unit: the partner's units, heaviest first, as long as enough is given.
  void ConsiderSeveral(uint32_t giver, uint32_t partner, Exchange& best) {
    const Load gap = load_[giver] - load_[partner];
    const Load least = std::min(load_[giver] - limits_.enough, gap / 2);
    for (const CostedUnit& give : Units(giver)) {
      Load amount = give.cost;
      std::vector<CostedUnit> get;
      for (const CostedUnit& unit : Units(partner)) {
        if (amount - unit.cost < least) continue;
        amount -= unit.cost;
        get.push_back(unit);
      }
      Load size = SizeOf(give);
      for (const CostedUnit& unit : get) size -= SizeOf(unit);
      if (amount <= 0 || amount >= gap || !Fits(giver, partner, size)) continue;
      Exchange exchange = MakeExchange(giver, partner, give, amount);
      if (!exchange.BetterThan(best)) continue;
      exchange.get = std::move(get);
      best = std::move(exchange);
    }
  }

  Exchange MakeExchange(uint32_t giver, uint32_t partner, const CostedUnit& give, Load amount) const {
    const Load heavier = std::max(load_[giver] - amount, load_[partner] + amount);
    return {partner, give, {}, std::max(heavier, limits_.enough), 2 * give.cost - amount};
  }

  void Apply(uint32_t giver, const Exchange& exchange) {
    for (uint32_t r : {giver, exchange.partner}) by_load_.erase({load_[r], r});
    Move(exchange.give, giver, exchange.partner);
    for (const CostedUnit& unit : exchange.get) Move(unit, exchange.partner, giver);
    for (uint32_t r : {giver, exchange.partner}) by_load_.insert({load_[r], r});
  }

  void Move(const CostedUnit& unit, uint32_t from, uint32_t to) {
    std::vector<CostedUnit>&left = Units(from), &joined = Units(to);
    left.erase(std::lower_bound(left.begin(), left.end(), unit));
    joined.insert(std::lower_bound(joined.begin(), joined.end(), unit), unit);
    load_[from] -= unit.cost;
    load_[to] += unit.cost;
    held_[from] -= SizeOf(unit);
    held_[to] += SizeOf(unit);
    rank_[unit.unit] = to;
  }

  // The units of a rank, heaviest first, sorted on first use: most ranks neither give nor take.
  std::vector<CostedUnit>& Units(uint32_t rank) {
    if (!sorted_[rank]) std::sort(units_[rank].begin(), units_[rank].end());
    sorted_[rank] = true;
    return units_[rank];
  }

  const ExchangeLimits& limits_;
  const std::span<uint32_t> rank_;
  std::vector<std::vector<CostedUnit>> units_;   // of every rank
  std::vector<bool> sorted_;                     // whether they are
  std::vector<Load> load_;                       // of every rank
  std::vector<Load> held_;                       // the sizes of every rank's units
  std::set<std::pair<Load, uint32_t>> by_load_;  // (load, rank) of the ranks that may have an exchange
};

}  // namespace

void EvenOut(std::span<const Load> cost, uint32_t ranks, const ExchangeLimits& limits,
             std::span<uint32_t> rank) {
  if (ranks > 1 && !rank.empty()) Search(cost, ranks, limits, rank).Run();
}

}  // namespace evenkeel::reorder
