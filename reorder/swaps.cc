#include "reorder/swaps.h"

#include <algorithm>
#include <utility>

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kMostUnits =
    128;  // of a rank that are looked at; with more the placement needs little repair
constexpr uint32_t kPartners = 6;  // ranks tried per repair among neighbours
constexpr uint32_t kRepairsPerRank = 8;
constexpr uint32_t kNone = 0xffffffffu;  // no unit: the exchange is a move

// The units of a rank that are looked at, in lanes; the last one is the unit that is none.
struct Side {
  Float4 share[kNumPhases][kMostUnits / 4 + 1];
  uint32_t unit[kMostUnits + 4];
  uint32_t size = 0;  // rounded up to lanes

  void Fill(const std::vector<uint32_t>& units, std::span<const Shares> shares) {
    size = 0;
    const uint32_t looked = std::min<uint32_t>(kMostUnits - 1, static_cast<uint32_t>(units.size()));
    for (uint32_t i = 0; i < looked; ++i) {
      const uint32_t u = units[uint64_t{i} * units.size() / looked];
      Append(u, shares[u]);
    }
    Append(kNone, Shares{});
    while (size % 4 != 0) Append(kNone, Shares{});
  }
  Shares At(uint32_t i) const {
    return {share[0][i / 4][i % 4], share[1][i / 4][i % 4], share[2][i / 4][i % 4]};
  }

 private:
  void Append(uint32_t u, const Shares& s) {
    for (int p = 0; p < kNumPhases; ++p) share[p][size / 4][size % 4] = s[p];
    unit[size++] = u;
  }
};

struct Exchange {
  uint32_t give = kNone;
  uint32_t get = kNone;
  Shares delta = {};  // that leaves the giver
};

Float4 Least(Float4 a, Float4 b) { return a < b ? a : b; }

// The exchange whose difference comes nearest to `wanted`.
Exchange Nearest(const Side& giver, const Side& taker, const Shares& wanted, const Shares& weight) {
  float best = 3e38f;
  uint32_t best_i = 0;
  const auto distance = [&](const Shares& given, uint32_t four) {
    const Float4 d0 = given[0] - wanted[0] - taker.share[0][four];
    const Float4 d1 = given[1] - wanted[1] - taker.share[1][four];
    const Float4 d2 = given[2] - wanted[2] - taker.share[2][four];
    return weight[0] * d0 * d0 + weight[1] * d1 * d1 + weight[2] * d2 * d2;
  };
  for (uint32_t i = 0; i < giver.size; ++i) {
    const Shares given = giver.At(i);
    Float4 least = {best, best, best, best};
    for (uint32_t four = 0; four < taker.size / 4; ++four) least = Least(least, distance(given, four));
    const float row = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
    if (row < best) best = row, best_i = i;
  }
  Exchange exchange{.give = giver.unit[best_i]};
  const Shares given = giver.At(best_i);
  for (uint32_t j = 0; j < taker.size; ++j) {
    if (distance(given, j / 4)[j % 4] != best) continue;
    const Shares got = taker.At(j);
    exchange.get = taker.unit[j];
    for (int p = 0; p < kNumPhases; ++p) exchange.delta[p] = given[p] - got[p];
    break;
  }
  return exchange;
}

class Repair {
 public:
  Repair(const SwapProblem& problem, std::vector<uint32_t>& rank)
      : problem_(problem), rank_(rank), units_(problem.num_ranks), load_(problem.num_ranks, Shares{}) {
    std::vector<uint32_t> count(problem.num_ranks, 0);
    for (uint32_t r : rank) ++count[r];
    for (uint32_t r = 0; r < problem.num_ranks; ++r) units_[r].reserve(count[r] + 4);
    for (uint32_t u = 0; u < rank.size(); ++u) {
      units_[rank[u]].push_back(u);
      for (int p = 0; p < kNumPhases; ++p) load_[rank[u]][p] += problem.shares[u][p];
    }
  }

  void Run() {
    for (const SwapPass& pass : problem_.passes) {
      pass_ = &pass;
      RunPass();
    }
  }

 private:
  void RunPass() {
    std::vector<uint32_t> ranks, stuck;
    for (const Family& family : *problem_.families) {
      ranks.clear();
      for (uint32_t i = 0; i < family.size(); ++i) ranks.push_back(family.child(i));
      RepairAmong(ranks, stuck);
    }
    if (pass_->far_partners == 0 || stuck.empty() || problem_.families->size() == 1) return;
    ranks.resize(problem_.num_ranks);
    for (uint32_t r = 0; r < problem_.num_ranks; ++r) ranks[r] = r;
    for (uint32_t r : stuck) {
      for (uint32_t tries = 0; tries < kRepairsPerRank && Needs(load_[r]) > 0; ++tries) {
        if (!RepairOne(r, ranks, pass_->far_partners)) break;
      }
    }
  }

  // How urgently a rank wants repair; 0: not at all.
  float Needs(const Shares& load) const {
    return pass_->llm_only && !(load[0] > problem_.cap[0]) ? 0 : Excess(load);
  }

  float Excess(const Shares& load) const {
    float excess = 0;
    for (int p = 0; p < kNumPhases; ++p) {
      const float above = load[p] - problem_.cap[p];
      if (above > 0) excess += pass_->weight[p] * above;
    }
    return excess;
  }

  // Repairs the ranks, worst first; those that stay above a cap are appended to `stuck`.
  void RepairAmong(const std::vector<uint32_t>& ranks, std::vector<uint32_t>& stuck) {
    std::vector<uint32_t> open = ranks;
    for (size_t tries = kRepairsPerRank * ranks.size(); tries > 0 && !open.empty(); --tries) {
      uint32_t worst = 0;
      for (uint32_t i = 1; i < open.size(); ++i) {
        if (Needs(load_[open[i]]) > Needs(load_[open[worst]])) worst = i;
      }
      if (!(Needs(load_[open[worst]]) > 0)) break;
      if (!RepairOne(open[worst], ranks, kPartners)) {
        stuck.push_back(open[worst]);
        open.erase(open.begin() + worst);
      }
    }
    for (uint32_t r : open) {
      if (Needs(load_[r]) > 0) stuck.push_back(r);
    }
  }

  // One exchange that lessens the excess of `giver` and a partner together; false where none was found.
  bool RepairOne(uint32_t giver, const std::vector<uint32_t>& ranks, size_t most) {
    ChoosePartners(giver, ranks, most);
    giver_.Fill(units_[giver], problem_.shares);
    float best_excess = 0;
    uint32_t best_partner = kNone;
    Exchange best;
    for (uint32_t partner : partners_) {
      taker_.Fill(units_[partner], problem_.shares);
      Shares wanted;
      for (int p = 0; p < kNumPhases; ++p) wanted[p] = 0.5f * (load_[giver][p] - load_[partner][p]);
      const Exchange exchange = Nearest(giver_, taker_, wanted, pass_->weight);
      if (exchange.give == exchange.get) continue;
      Shares mine = load_[giver], theirs = load_[partner];
      for (int p = 0; p < kNumPhases; ++p) mine[p] -= exchange.delta[p], theirs[p] += exchange.delta[p];
      const float before = Excess(load_[giver]) + Excess(load_[partner]);
      const float gain = before - Excess(mine) - Excess(theirs);
      if (gain > 1e-6f && gain > best_excess) best_excess = gain, best_partner = partner, best = exchange;
    }
    if (best_partner == kNone) return false;
    Apply(giver, best_partner, best);
    return true;
  }

  // The ranks with most room where the giver has too much.
  void ChoosePartners(uint32_t giver, const std::vector<uint32_t>& ranks, size_t most) {
    Shares direction;
    for (int p = 0; p < kNumPhases; ++p) {
      direction[p] = std::max(0.0f, load_[giver][p] - problem_.cap[p]) * pass_->weight[p];
    }
    std::vector<std::pair<float, uint32_t>> order;
    for (uint32_t r : ranks) {
      if (r == giver) continue;
      float load = 0;
      for (int p = 0; p < kNumPhases; ++p) load += direction[p] * load_[r][p];
      order.emplace_back(load, r);
    }
    const size_t count = std::min(most, order.size());
    std::partial_sort(order.begin(), order.begin() + count, order.end());
    partners_.clear();
    for (size_t i = 0; i < count; ++i) partners_.push_back(order[i].second);
  }

  void Apply(uint32_t giver, uint32_t taker, const Exchange& exchange) {
    for (int p = 0; p < kNumPhases; ++p) {
      load_[giver][p] -= exchange.delta[p];
      load_[taker][p] += exchange.delta[p];
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
  const SwapPass* pass_ = nullptr;
  std::vector<uint32_t>& rank_;
  std::vector<std::vector<uint32_t>> units_;  // of every rank
  std::vector<Shares> load_;                  // of every rank
  std::vector<uint32_t> partners_;
  Side giver_, taker_;
};

}  // namespace

void RepairBySwaps(const SwapProblem& problem, std::vector<uint32_t>& rank) { Repair(problem, rank).Run(); }

}  // namespace evenkeel::reorder
