#include "reorder/swaps.h"

#include <algorithm>
#include <utility>

#include "reorder/by_rank.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kMostUnits =
    128;  // of a rank that are looked at; with more the placement needs little repair
constexpr uint32_t kPartners = 6;  // ranks tried per repair among neighbours
constexpr uint32_t kRepairsPerRank = 8;
constexpr uint32_t kNone = 0xffffffffu;  // no unit: the exchange is a move
constexpr uint32_t kMostLanes = 16;

// The units of a rank that are looked at, side by side; the last one is the unit that is none.
struct Side {
  alignas(64) float share[kNumPhases][kMostUnits + kMostLanes];
  uint32_t unit[kMostUnits + kMostLanes];
  uint32_t size = 0;  // rounded up to lanes

  void Fill(const std::vector<uint32_t>& from, std::span<const Unit> units) {
    size = 0;
    const uint32_t looked = std::min<uint32_t>(kMostUnits - 1, static_cast<uint32_t>(from.size()));
    for (uint32_t i = 0; i < looked; ++i) {
      const uint32_t u = looked == from.size() ? from[i] : from[uint64_t{i} * from.size() / looked];
      Append(u, units[u].share);
    }
    Append(kNone, Shares{});
    while (size % kMostLanes != 0) Append(kNone, Shares{});
  }
  Shares At(uint32_t i) const { return {share[0][i], share[1][i], share[2][i]}; }

 private:
  void Append(uint32_t u, const Shares& s) {
    for (int p = 0; p < kNumPhases; ++p) share[p][size] = s[p];
    unit[size++] = u;
  }
};

struct Exchange {
  uint32_t give = kNone;
  uint32_t get = kNone;
  Shares delta = {};  // that leaves the giver
};

// Of all pairs, the first unit of the giver and the first of the taker whose difference comes nearest to
// `wanted`.
template <int kLanes>
EVENKEEL_INLINE std::pair<uint32_t, uint32_t> NearestPair(const Side& giver, const Side& taker,
                                                          const Shares& wanted, const Shares& weight) {
  using Floats = typename Lanes<kLanes>::Floats;
  using Ints = typename Lanes<kLanes>::Ints;
  const auto* const taken0 = reinterpret_cast<const Floats*>(taker.share[0]);
  const auto* const taken1 = reinterpret_cast<const Floats*>(taker.share[1]);
  const auto* const taken2 = reinterpret_cast<const Floats*>(taker.share[2]);
  const auto measure = [&](const Shares& left, uint32_t v, Floats& distance) EVENKEEL_INLINE_LAMBDA {
    const Floats d0 = left[0] - taken0[v], d1 = left[1] - taken1[v], d2 = left[2] - taken2[v];
    distance = weight[0] * d0 * d0 + weight[1] * d1 * d1 + weight[2] * d2 * d2;
  };
  // What is left to be given back by the taker's unit.
  const auto left_by = [&](uint32_t i) EVENKEEL_INLINE_LAMBDA {
    return Shares{giver.share[0][i] - wanted[0], giver.share[1][i] - wanted[1],
                  giver.share[2][i] - wanted[2]};
  };
  // Every lane keeps its own least and whose it was: across lanes they are compared once, at the end.
  Floats nearest = Floats{} + 3e38f;
  Ints whose = {};
  for (uint32_t i = 0; i < giver.size; ++i) {
    const Shares left = left_by(i);
    Floats least, distance;
    measure(left, 0, least);
    for (uint32_t v = 1; v < taker.size / kLanes; ++v) {
      measure(left, v, distance);
      KeepLeast(least, distance);
    }
    const Ints nearer = least < nearest;
    nearest = nearer ? least : nearest;
    whose = nearer ? Ints{} + static_cast<int32_t>(i) : whose;
  }
  Floats least = nearest;
  SpreadLeast(least);
  const float best = least[0];
  uint32_t best_i = giver.size;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (nearest[lane] == best) best_i = std::min(best_i, static_cast<uint32_t>(whose[lane]));
  }
  const Shares left = left_by(best_i);
  for (uint32_t v = 0; v < taker.size / kLanes; ++v) {
    Floats distance;
    measure(left, v, distance);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (distance[lane] == best) return {best_i, v * kLanes + lane};
    }
  }
  return {best_i, taker.size};
}

std::pair<uint32_t, uint32_t> NearestPairBaseline(const Side& giver, const Side& taker, const Shares& wanted,
                                                  const Shares& weight) {
  return NearestPair<4>(giver, taker, wanted, weight);
}

EVENKEEL_AVX2 std::pair<uint32_t, uint32_t> NearestPairAvx2(const Side& giver, const Side& taker,
                                                            const Shares& wanted, const Shares& weight) {
  return NearestPair<8>(giver, taker, wanted, weight);
}

EVENKEEL_AVX512 std::pair<uint32_t, uint32_t> NearestPairAvx512(const Side& giver, const Side& taker,
                                                                const Shares& wanted, const Shares& weight) {
  return NearestPair<16>(giver, taker, wanted, weight);
}

// The exchange whose difference comes nearest to `wanted`.
Exchange Nearest(const Side& giver, const Side& taker, const Shares& wanted, const Shares& weight,
                 Width width) {
  const auto [i, j] = (width == Width::kSixteen ? NearestPairAvx512
                       : width == Width::kEight ? NearestPairAvx2
                                                : NearestPairBaseline)(giver, taker, wanted, weight);
  Exchange exchange{.give = giver.unit[i]};
  if (j == taker.size) return exchange;
  exchange.get = taker.unit[j];
  const Shares given = giver.At(i), got = taker.At(j);
  for (int p = 0; p < kNumPhases; ++p) exchange.delta[p] = given[p] - got[p];
  return exchange;
}

class Repair {
 public:
  Repair(const SwapProblem& problem, std::span<uint32_t> rank, Workspace& workspace, Width width)
      : problem_(problem),
        width_(width),
        rank_(rank),
        scope_(workspace),
        workspace_(workspace),
        load_(problem.load.begin(), problem.load.end()) {}

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
      ranks.assign(family.child, family.child + family.size);
      RepairAmong(ranks, stuck);
    }
    if (pass_->far_partners == 0 || stuck.empty() || problem_.families->size() == 1) return;
    ranks.resize(load_.size());
    for (uint32_t r = 0; r < load_.size(); ++r) ranks[r] = r;
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
    giver_ = SideOf(giver);  // a copy: a partner's may take its place
    const float excess = Excess(load_[giver]);
    float best_excess = 0;
    uint32_t best_partner = kNone;
    Exchange best;
    for (uint32_t partner : partners_) {
      const float before = excess + Excess(load_[partner]);
      if (before <= best_excess) continue;  // no exchange gains more than there is
      const Side& taker = SideOf(partner);
      Shares wanted;
      for (int p = 0; p < kNumPhases; ++p) wanted[p] = 0.5f * (load_[giver][p] - load_[partner][p]);
      const Exchange exchange = Nearest(giver_, taker, wanted, pass_->weight, width_);
      if (exchange.give == exchange.get) continue;
      Shares mine = load_[giver], theirs = load_[partner];
      for (int p = 0; p < kNumPhases; ++p) mine[p] -= exchange.delta[p], theirs[p] += exchange.delta[p];
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

  // Ranks of a family are looked at again and again, and the sides of the last few are kept.
  const Side& SideOf(uint32_t rank) {
    Kept& kept = kept_[rank % kept_.size()];
    if (kept.rank != rank) kept.side.Fill(UnitsOf(rank), problem_.units);
    kept.rank = rank;
    return kept.side;
  }
  void Forget(uint32_t rank) {
    Kept& kept = kept_[rank % kept_.size()];
    if (kept.rank == rank) kept.rank = kNone;
  }

  void Move(uint32_t unit, uint32_t from, uint32_t to) {
    if (unit == kNone) return;
    Forget(from), Forget(to);
    std::vector<uint32_t>& units = UnitsOf(from);
    units.erase(std::find(units.begin(), units.end(), unit));
    UnitsOf(to).push_back(unit);
    rank_[unit] = to;
  }

  // The units of a rank. Few ranks are ever looked at: the lists are made when the first one is.
  std::vector<uint32_t>& UnitsOf(uint32_t rank) {
    if (units_.empty()) ListUnits();
    std::vector<uint32_t>& units = units_[rank];
    if (!listed_[rank]) {
      listed_[rank] = true;
      const std::span<const uint32_t> before = by_rank_.of(rank);
      units.reserve(before.size() + 4);
      units.assign(before.begin(), before.end());
    }
    return units;
  }

  void ListUnits() {
    units_.resize(load_.size());
    listed_.resize(load_.size());
    by_rank_ = ChainedByRank(rank_, load_.size(), workspace_.Take<uint32_t>(rank_.size()));
  }

  const SwapProblem& problem_;
  const Width width_;
  const SwapPass* pass_ = nullptr;
  const std::span<uint32_t> rank_;
  const Workspace::Scope scope_;
  Workspace& workspace_;
  std::vector<Shares> load_;                  // of every rank
  std::vector<std::vector<uint32_t>> units_;  // of every rank that was looked at; see UnitsOf
  std::vector<bool> listed_;
  ChainedByRank by_rank_;  // as it was before the first exchange, large units first
  std::vector<uint32_t> partners_;
  Side giver_;
  struct Kept {
    uint32_t rank = kNone;
    Side side;
  };
  std::vector<Kept> kept_ = std::vector<Kept>(Family::kMost);
};

}  // namespace

void RepairBySwaps(const SwapProblem& problem, std::span<uint32_t> rank, Workspace& workspace, Width width) {
  Repair(problem, rank, workspace, width).Run();
}

}  // namespace evenkeel::reorder
