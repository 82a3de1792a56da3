// Ours. The samples in descending order of their largest share of any phase, each to the rank where it adds
// least to the sum over the phases of squared loads: a sample rich in what a rank lacks goes there. A rank
// that is balanced in all phases at once is what lets items stay beside their sample.
//
// The ranks are the leaves of a tree of small families, and a sample descends from the root to the best
// child: O(log ranks) a sample. What remains above the tolerance is repaired by exchanges between two ranks.
#include "reorder/joint_placement.h"

#include <algorithm>
#include <bit>

#include "reorder/families.h"
#include "reorder/radix_sort.h"
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

  float Share(size_t i) const {
    return static_cast<float>((static_cast<double>(cost[i * stride]) + least) * factor);
  }
};

Column MakeColumn(std::span<const Load> cost, double least, double ranks) {
  Load sum = 0;
  for (Load load : cost) sum += load;
  const double total = static_cast<double>(sum) + least * static_cast<double>(cost.size());
  return {cost.data(), 1, least, total > 0 ? ranks / total : 0};
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
    std::vector<uint32_t> rank_of_unit(units_.size());
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
    Column columns[kNumPhases];
    for (Column& column : columns) column.cost = &kNothing;
    if (count > 0) columns[0] = MakeColumn(problem_.cost, 1, ranks);
    for (size_t p = 0; p < problem_.in_view.size(); ++p) {
      if (count > 0) columns[1 + p] = MakeColumn(problem_.in_view[p], 0, ranks);
    }
    units_ = workspace_.Take<Unit>(count);
    const Workspace::Scope scope(workspace_);
    const std::span<Shares> shares = workspace_.Take<Shares>(count);
    std::span<uint64_t> order = workspace_.Take<uint64_t>(count), spare = workspace_.Take<uint64_t>(count);
    // Positive floats order as integers; four digits of them are order enough. Largest first: what is missing
    // to the largest there is.
    constexpr int kDropped = 9, kKeyBits = 31 - kDropped;
    constexpr uint64_t kLargest = (uint64_t{1} << kKeyBits) - 1;
    const Column llm = columns[0], second = columns[1], third = columns[2];
    for (size_t i = 0; i < count; ++i) {
      const Shares share = {llm.Share(i), second.Share(i), third.Share(i)};
      const float largest = std::max(share[0], std::max(share[1], share[2]));
      shares[i] = share;
      order[i] = (kLargest - (std::bit_cast<uint32_t>(largest) >> kDropped)) << 32 | i;
    }
    RadixSort(order, spare, 32, 32 + kKeyBits);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t unit = static_cast<uint32_t>(order[i]);
      units_[i] = {shares[unit], unit};
    }
  }

  // The mean, or the longest unit where that is more, and somewhat less than the tolerance: above the
  // tolerance in exact numbers items move, and these are floats.
  Shares Caps() const {
    Shares cap = {1, 1, 1};
    for (const Unit& unit : units_) {
      for (int p = 0; p < kNumPhases; ++p) cap[p] = std::max(cap[p], unit.share[p]);
    }
    for (float& c : cap) c *= static_cast<float>(1 + 0.95 * problem_.tolerance);
    return cap;
  }

  const BalanceProblem& problem_;
  const Workspace::Scope scope_;
  Workspace& workspace_;
  FamilyTree families_;
  std::span<Unit> units_;  // largest first
};

}  // namespace

std::vector<uint32_t> PlaceJointly(const BalanceProblem& problem) {
  Workspace own(problem.cost.size() * (2 * sizeof(Unit) + 3 * sizeof(uint64_t)));
  return JointPlacement(problem, problem.workspace == nullptr ? own : *problem.workspace).Run();
}

}  // namespace evenkeel::reorder
