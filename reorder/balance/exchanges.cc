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
      : limits_(limits), rank_(rank), units_(ranks), sorted_(ranks, false), load_(ranks, 0) {
    for (uint32_t i = 0; i < rank.size(); ++i) {
      units_[rank[i]].push_back({cost[i], i});
      load_[rank[i]] += cost[i];
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
      for (uint32_t partner : limits_.nodes->OnNode(limits_.nodes->node[giver]))
        Consider(giver, partner, best);
    }
    const bool found = best.partner != kNowhere;
    if (limits_.stay_on_node || (found && best.heavier <= limits_.enough)) {
      return found ? best : BestForSeveral(giver);
    }
    uint32_t tried = 0;
    for (const auto& [load, partner] : by_load_) {
      if (best.partner != kNowhere && (tried >= kPartners || best.heavier <= limits_.enough)) break;
      ++tried;
      Consider(giver, partner, best);
    }
    return best.partner != kNowhere ? best : BestForSeveral(giver);
  }

  // Considers one unit for one or none.
  void Consider(uint32_t giver, uint32_t partner, Exchange& best) {
    const Load gap = load_[giver] - load_[partner], excess = load_[giver] - limits_.enough;
    if (gap <= 0) return;
    const std::vector<CostedUnit>& theirs = Units(partner);
    const auto consider = [&](const CostedUnit& give, const CostedUnit& get) {
      const Load amount = give.cost - get.cost;
      if (amount <= 0 || amount >= gap) return;
      Exchange exchange = MakeExchange(giver, partner, give, amount);
      if (!exchange.BetterThan(best)) return;
      if (get.unit != kNowhere) exchange.get = {get};
      best = std::move(exchange);
    };
    for (const CostedUnit& give : Units(giver)) {
      if (!limits_.keep_counts) consider(give, CostedUnit());
      // In return: the two units around the cost that would halve the gap, and around the one that is just enough.
      for (const Load wanted : {give.cost - gap / 2, give.cost - excess}) {
        const auto lighter = std::partition_point(theirs.begin(), theirs.end(),
                                                  [&](const CostedUnit& unit) { return unit.cost > wanted; });
        if (lighter != theirs.end()) consider(give, *lighter);
        if (lighter != theirs.begin()) consider(give, *(lighter - 1));
      }
    }
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
      if (amount <= 0 || amount >= gap) continue;
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
  std::set<std::pair<Load, uint32_t>> by_load_;  // (load, rank) of the ranks that may have an exchange
};

}  // namespace

void EvenOut(std::span<const Load> cost, uint32_t ranks, const ExchangeLimits& limits,
             std::span<uint32_t> rank) {
  if (ranks > 1 && !rank.empty()) Search(cost, ranks, limits, rank).Run();
}

}  // namespace evenkeel::reorder
