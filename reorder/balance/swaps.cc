// Repairs a placement: two ranks exchange the pair of units, one of each, whose difference is nearest to half
// the difference of the ranks' loads in all phases; or one unit moves, which is an exchange for no unit.
#include "reorder/balance/swaps.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "reorder/by_rank.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kMaxUnits = 127;  // units of a rank considered; with more units, repairs are rarely needed
constexpr uint32_t kPartners = 6;    // ranks tried per repair in the same group
constexpr uint32_t kRepairsPerRank = 8;
constexpr uint32_t kNone = 0xffffffffu;  // no unit

// The units of a rank that are considered, in columns by phase; the last one is "no unit".
struct Candidates {
  std::vector<uint32_t> unit;
  std::vector<float> share;  // [phases, unit.size()]

  size_t size() const { return unit.size(); }
  const float* phase(size_t p) const { return share.data() + p * unit.size(); }
};

Candidates CandidatesOf(const std::vector<uint32_t>& from, const ShareTable& units) {
  const size_t looked_at = std::min<size_t>(kMaxUnits, from.size());
  Candidates candidates;
  for (size_t i = 0; i < looked_at; ++i) candidates.unit.push_back(from[i * from.size() / looked_at]);
  candidates.unit.push_back(kNone);
  candidates.share.assign(units.num_phases() * candidates.size(), 0);
  for (size_t i = 0; i < looked_at; ++i) {
    const std::span<const float> row = units.row(candidates.unit[i]);
    for (size_t p = 0; p < row.size(); ++p) candidates.share[p * candidates.size() + i] = row[p];
  }
  return candidates;
}

struct Exchange {
  uint32_t give = kNone;
  uint32_t get = kNone;
  std::vector<float> delta;  // [phases] the load that leaves the giver
};

class Repair {
 public:
  Repair(const SwapProblem& problem, std::span<uint32_t> rank)
      : problem_(problem), num_phases_(problem.units.num_phases()), rank_(rank), load_(problem.load) {}

  void Run() {
    for (const SwapPass& pass : problem_.passes) {
      pass_ = pass;
      RunPass();
    }
  }

 private:
  float WeightOf(size_t phase) const { return phase == 0 ? pass_.llm_weight : pass_.encoder_weight; }

  void RunPass() {
    std::vector<uint32_t> stuck;
    for (const std::vector<uint32_t>& group : problem_.groups) RepairAmong(group, stuck);
    if (pass_.far_partners == 0 || stuck.empty() || problem_.groups.size() == 1) return;
    std::vector<uint32_t> all(load_.num_rows());
    for (uint32_t r = 0; r < all.size(); ++r) all[r] = r;
    for (uint32_t r : stuck) {
      for (uint32_t tries = 0; tries < kRepairsPerRank && Needs(r) > 0; ++tries) {
        if (!RepairOne(r, all, pass_.far_partners)) break;
      }
    }
  }

  // The weighted excess of a rank; 0: it needs no repair.
  float Needs(uint32_t rank) const {
    const std::span<const float> load = load_.row(rank);
    return pass_.llm_only && !(load[0] > problem_.cap[0]) ? 0 : Excess(load);
  }

  float Excess(std::span<const float> load) const {
    float excess = 0;
    for (size_t p = 0; p < num_phases_; ++p) {
      const float above = load[p] - problem_.cap[p];
      if (above > 0) excess += WeightOf(p) * above;
    }
    return excess;
  }

  // Repairs the ranks, the worst first; ranks that stay above a cap are appended to `stuck`.
  void RepairAmong(const std::vector<uint32_t>& ranks, std::vector<uint32_t>& stuck) {
    std::vector<uint32_t> open = ranks;
    for (size_t tries = kRepairsPerRank * ranks.size(); tries > 0 && !open.empty(); --tries) {
      const auto worst = std::max_element(open.begin(), open.end(),
                                          [&](uint32_t a, uint32_t b) { return Needs(a) < Needs(b); });
      if (!(Needs(*worst) > 0)) break;
      if (!RepairOne(*worst, ranks, kPartners)) {
        stuck.push_back(*worst);
        open.erase(worst);
      }
    }
    for (uint32_t r : open) {
      if (Needs(r) > 0) stuck.push_back(r);
    }
  }

  // Makes the exchange that reduces the excess of `giver` and a partner together the most. Returns false if
  // there is none.
  bool RepairOne(uint32_t giver, const std::vector<uint32_t>& ranks, size_t max_partners) {
    if (units_.empty()) units_ = UnitsByRank(rank_, load_.num_rows());
    const Candidates gives = CandidatesOf(units_[giver], problem_.units);
    const float excess = Excess(load_.row(giver));
    float best_gain = 0;
    uint32_t best_partner = kNone;
    Exchange best;
    for (uint32_t partner : PartnersFor(giver, ranks, max_partners)) {
      const float before = excess + Excess(load_.row(partner));
      if (before <= best_gain) continue;  // no exchange gains more than there is
      Exchange exchange =
          NearestExchange(gives, CandidatesOf(units_[partner], problem_.units), giver, partner);
      if (exchange.give == exchange.get) continue;
      std::vector<float> mine(num_phases_), theirs(num_phases_);
      for (size_t p = 0; p < num_phases_; ++p) {
        mine[p] = load_.row(giver)[p] - exchange.delta[p];
        theirs[p] = load_.row(partner)[p] + exchange.delta[p];
      }
      const float gain = before - Excess(mine) - Excess(theirs);
      if (gain > 1e-6f && gain > best_gain) {
        best_gain = gain;
        best_partner = partner;
        best = std::move(exchange);
      }
    }
    if (best_partner == kNone) return false;
    Apply(giver, best_partner, best);
    return true;
  }

  // The ranks with the lowest load in the phases in which the giver is above the cap.
  std::vector<uint32_t> PartnersFor(uint32_t giver, const std::vector<uint32_t>& ranks,
                                    size_t max_partners) const {
    std::vector<float> direction(num_phases_);
    for (size_t p = 0; p < num_phases_; ++p) {
      direction[p] = std::max(0.0f, load_.row(giver)[p] - problem_.cap[p]) * WeightOf(p);
    }
    std::vector<std::pair<float, uint32_t>> order;  // (load, rank)
    for (uint32_t r : ranks) {
      if (r == giver) continue;
      float load = 0;
      for (size_t p = 0; p < num_phases_; ++p) load += direction[p] * load_.row(r)[p];
      order.emplace_back(load, r);
    }
    const size_t count = std::min(max_partners, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end());
    std::vector<uint32_t> partners;
    for (size_t i = 0; i < count; ++i) partners.push_back(order[i].second);
    return partners;
  }

  // Of all pairs of candidates, the first whose difference comes nearest to half the difference of the two
  // ranks: the least weighted sum over the phases of squared distances. The inner loop is over the taker's
  // candidates, phase by phase, so that the compiler makes vectors of it.
  Exchange NearestExchange(const Candidates& gives, const Candidates& takes, uint32_t giver,
                           uint32_t taker) const {
    std::vector<float> wanted(num_phases_);
    for (size_t p = 0; p < num_phases_; ++p) wanted[p] = 0.5f * (load_.row(giver)[p] - load_.row(taker)[p]);
    float distance[kMaxUnits + 1];
    const size_t size = takes.size();
    // Distances are not negative, so they have the same order as the integers of their bits.
    int32_t nearest = std::numeric_limits<int32_t>::max();
    size_t best_give = gives.size() - 1, best_take = size - 1;
    for (size_t i = 0; i < gives.size(); ++i) {
      for (size_t p = 0; p < num_phases_; ++p) {
        const float left = gives.phase(p)[i] - wanted[p], weight = WeightOf(p);
        const float* const taken = takes.phase(p);
        for (size_t j = 0; j < size; ++j) {
          const float off = left - taken[j];
          distance[j] = (p == 0 ? 0 : distance[j]) + weight * off * off;
        }
      }
      int32_t least = std::numeric_limits<int32_t>::max();
      for (size_t j = 0; j < size; ++j) least = std::min(least, std::bit_cast<int32_t>(distance[j]));
      if (least >= nearest) continue;
      nearest = least;
      best_give = i;
      const float at_best = std::bit_cast<float>(least);
      best_take = static_cast<size_t>(std::find(distance, distance + size, at_best) - distance);
    }
    Exchange exchange{.give = gives.unit[best_give], .get = takes.unit[best_take]};
    for (size_t p = 0; p < num_phases_; ++p) {
      exchange.delta.push_back(gives.phase(p)[best_give] - takes.phase(p)[best_take]);
    }
    return exchange;
  }

  void Apply(uint32_t giver, uint32_t taker, const Exchange& exchange) {
    for (size_t p = 0; p < num_phases_; ++p) {
      load_.row(giver)[p] -= exchange.delta[p];
      load_.row(taker)[p] += exchange.delta[p];
    }
    Move(exchange.give, giver, taker);
    Move(exchange.get, taker, giver);
  }

  void Move(uint32_t unit, uint32_t from, uint32_t to) {
    if (unit == kNone) return;
    std::vector<uint32_t>& units = units_[from];
    units.erase(std::find(units.begin(), units.end(), unit));
    units_[to].push_back(unit);
    rank_[unit] = to;
  }

  const SwapProblem& problem_;
  const size_t num_phases_;
  SwapPass pass_;
  const std::span<uint32_t> rank_;
  ShareTable load_;                           // of every rank
  std::vector<std::vector<uint32_t>> units_;  // per rank, large ones first; filled by the first repair
};

}  // namespace

void RepairBySwaps(const SwapProblem& problem, std::span<uint32_t> rank) { Repair(problem, rank).Run(); }

}  // namespace evenkeel::reorder
