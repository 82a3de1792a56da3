// Repairs a placement: two ranks exchange the pair of units, one of each, whose difference is nearest to half
// the difference of the ranks' loads in all phases; or one unit moves, which is an exchange for no unit.
#include "reorder/balance/swaps.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "reorder/by_rank.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kMaxUnits = 127;  // units of a rank considered; with more units, repairs are rarely needed
constexpr uint32_t kPartners = 6;    // ranks tried per repair in the same group
constexpr uint32_t kRepairsPerRank = 8;
constexpr uint32_t kNone = 0xffffffffu;  // no unit

// The units of a rank that are considered, from large to small, and "no unit".
std::vector<uint32_t> CandidatesOf(const std::vector<uint32_t>& units) {
  const size_t looked_at = std::min<size_t>(kMaxUnits, units.size());
  std::vector<uint32_t> candidates;
  for (size_t i = 0; i < looked_at; ++i) candidates.push_back(units[i * units.size() / looked_at]);
  candidates.push_back(kNone);
  return candidates;
}

struct Exchange {
  uint32_t give = kNone;
  uint32_t get = kNone;
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
    const std::vector<uint32_t> gives = CandidatesOf(units_[giver]);
    const float excess = Excess(load_.row(giver));
    float best_gain = 0;
    uint32_t best_partner = kNone;
    Exchange best;
    for (uint32_t partner : PartnersFor(giver, ranks, max_partners)) {
      const float before = excess + Excess(load_.row(partner));
      if (before <= best_gain) continue;  // no exchange gains more than there is
      const Exchange exchange = NearestExchange(gives, CandidatesOf(units_[partner]), giver, partner);
      if (exchange.give == exchange.get) continue;
      std::vector<float> mine(num_phases_), theirs(num_phases_);
      for (size_t p = 0; p < num_phases_; ++p) {
        mine[p] = load_.row(giver)[p] - Delta(exchange, p);
        theirs[p] = load_.row(partner)[p] + Delta(exchange, p);
      }
      const float gain = before - Excess(mine) - Excess(theirs);
      if (gain > 1e-6f && gain > best_gain) {
        best_gain = gain;
        best_partner = partner;
        best = exchange;
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
  // ranks: the least weighted sum over the phases of squared distances. O(candidates^2 * phases), at most
  // 128^2 pairs.
  Exchange NearestExchange(const std::vector<uint32_t>& gives, const std::vector<uint32_t>& takes,
                           uint32_t giver, uint32_t taker) const {
    std::vector<float> wanted(num_phases_);
    for (size_t p = 0; p < num_phases_; ++p) wanted[p] = 0.5f * (load_.row(giver)[p] - load_.row(taker)[p]);
    Exchange exchange;
    float nearest = std::numeric_limits<float>::infinity();
    for (uint32_t give : gives) {
      for (uint32_t get : takes) {
        float distance = 0;  // no phase makes it less
        for (size_t p = 0; p < num_phases_ && distance < nearest; ++p) {
          const float off = ShareOf(give, p) - wanted[p] - ShareOf(get, p);
          distance += WeightOf(p) * off * off;
        }
        if (distance < nearest) nearest = distance, exchange.give = give, exchange.get = get;
      }
    }
    return exchange;
  }

  // The load of a phase that leaves the giver.
  float Delta(const Exchange& exchange, size_t phase) const {
    return ShareOf(exchange.give, phase) - ShareOf(exchange.get, phase);
  }

  float ShareOf(uint32_t unit, size_t phase) const {
    return unit == kNone ? 0 : problem_.units.row(unit)[phase];
  }

  void Apply(uint32_t giver, uint32_t taker, const Exchange& exchange) {
    for (size_t p = 0; p < num_phases_; ++p) {
      load_.row(giver)[p] -= Delta(exchange, p);
      load_.row(taker)[p] += Delta(exchange, p);
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
