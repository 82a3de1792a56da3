// Ours. The samples in descending order of their largest share of any phase, each to the rank where it adds
// least to the sum over the phases of squared loads: a sample rich in what a rank lacks goes there. A rank
// that is balanced in all phases at once is what lets items stay beside their sample.
//
// The ranks are the leaves of a tree of small families, and a sample descends from the root to the best
// child: O(log ranks) a sample. What remains above the tolerance is repaired by exchanges between two ranks.
#include "reorder/joint_placement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "reorder/families.h"
#include "reorder/swaps.h"

namespace evenkeel::reorder {
namespace {

// The costs of one phase, and how they become shares. Units without cost count a little, so that they spread
// too.
struct Column {
  const Load* cost = nullptr;
  size_t stride = 0;  // 0: all units have the first one's
  double least = 0;
  double factor = 0;

  CostTotals totals;

  float Share(size_t i) const { return ShareOf(cost[i * stride]); }
  float ShareOf(Load load) const { return static_cast<float>((static_cast<double>(load) + least) * factor); }
};

Column MakeColumn(std::span<const Load> cost, double least, double ranks) {
  const CostTotals totals = TotalsOf(cost);
  const double total = static_cast<double>(totals.sum) + least * static_cast<double>(cost.size());
  return {cost.data(), 1, least, total > 0 ? ranks / total : 0, totals};
}

// Where a unit is in the order, by its largest share: floats that are not negative order as the integers of
// their bits, and two decimal digits of them are order enough. What is missing to the largest there is:
// largest first.
constexpr uint32_t kKeys = 1 << 14;
constexpr int kDroppedBits = 17;  // of the 31
uint32_t KeyOf(const Unit& unit) {
  const float largest = std::max(unit.share[0], std::max(unit.share[1], unit.share[2]));
  return kKeys - 1 - (std::bit_cast<uint32_t>(largest) >> kDroppedBits);
}

class JointPlacement {
 public:
  JointPlacement(const BalanceProblem& problem, Workspace& workspace)
      : problem_(problem), scope_(workspace), workspace_(workspace), families_(*problem.ranks) {}

  std::vector<uint32_t> Run() {
    FillUnits();
    const std::span<uint32_t> rank = workspace_.Take<uint32_t>(units_.size());
    families_.Place(units_, rank);
    // With few samples a rank not every phase can be met. An encoder's excess can still be moved by item, the
    // llm's cannot: the later passes trade the one for the other.
    const std::vector<Shares> load = families_.Loads(problem_.ranks->size());
    const SwapProblem swaps{.units = units_,
                            .load = load,
                            .families = &families_.leaves(),
                            .cap = Caps(),
                            .passes = {{.weight = {4, 1, 1}},
                                       {.weight = {1, 1e-2f, 1e-2f}, .far_partners = 16, .llm_only = true},
                                       {.weight = {1, 1e-5f, 1e-5f}, .far_partners = 64, .llm_only = true}}};
    RepairBySwaps(swaps, rank, workspace_);
    std::vector<uint32_t> rank_of_unit;
    ResizeToWrite(rank_of_unit, units_.size());
    for (size_t i = 0; i < units_.size(); ++i) rank_of_unit[units_[i].index] = rank[i];
    return rank_of_unit;
  }

 private:
  // Every cost as a share of the mean load of a rank, units with the largest share of any phase first.
  // Everything after reads memory in sequence.
  void FillUnits() {
    const size_t count = problem_.cost.size();
    const double ranks = problem_.ranks->size();
    static constexpr Load kNothing = 0;
    for (Column& column : columns_) column.cost = &kNothing;
    if (count > 0) columns_[0] = MakeColumn(problem_.cost, 1, ranks);
    for (size_t p = 0; p < problem_.in_view.size(); ++p) {
      if (count > 0) columns_[1 + p] = MakeColumn(problem_.in_view[p], 0, ranks);
    }
    units_ = workspace_.Take<Unit>(count);
    const Workspace::Scope scope(workspace_);
    const std::span<Unit> as_given = workspace_.Take<Unit>(count);
    std::vector<uint32_t> next(kKeys + 1, 0);  // of the units with a key
    const Column llm = columns_[0], second = columns_[1], third = columns_[2];
    for (uint32_t i = 0; i < count; ++i) {
      as_given[i] = {{llm.Share(i), second.Share(i), third.Share(i)}, i};
      ++next[KeyOf(as_given[i]) + 1];
    }
    std::inclusive_scan(next.begin(), next.end(), next.begin());
    for (const Unit& unit : as_given) units_[next[KeyOf(unit)]++] = unit;
  }

  // The least that the most loaded rank can have, and somewhat less than the tolerance: above the tolerance
  // in exact numbers items move, and these are floats.
  Shares Caps() const {
    Shares cap = {1, 1, 1};
    for (size_t p = 0; p < cap.size(); ++p) {
      const Column& column = columns_[p];
      if (!units_.empty()) cap[p] = std::max(cap[p], column.ShareOf(column.totals.dearest));
      if (column.totals.sum == 0) continue;
      const size_t ranks = problem_.ranks->size();
      const std::span<const Load> cost = p == 0 ? problem_.cost : problem_.in_view[p - 1];
      const Load least = LeastDearestRank(cost, column.totals, ranks, problem_.tolerance);
      cap[p] = std::max(cap[p], static_cast<float>(static_cast<double>(least) * static_cast<double>(ranks) /
                                                   static_cast<double>(column.totals.sum)));
    }
    for (float& c : cap) c *= static_cast<float>(1 + 0.95 * problem_.tolerance);
    return cap;
  }

  const BalanceProblem& problem_;
  const Workspace::Scope scope_;
  Workspace& workspace_;
  FamilyTree families_;
  std::array<Column, kNumPhases> columns_;
  std::span<Unit> units_;  // largest first
};

}  // namespace

std::vector<uint32_t> PlaceJointly(const BalanceProblem& problem) {
  Workspace own(problem.cost.size() * (2 * sizeof(Unit) + 2 * sizeof(uint64_t)));
  return JointPlacement(problem, problem.workspace == nullptr ? own : *problem.workspace).Run();
}

}  // namespace evenkeel::reorder
