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
#include "reorder/swaps.h"

namespace evenkeel::reorder {
namespace {

// The llm weighs more: its excess cannot be moved by item afterwards.
constexpr float kLlmWeight = 2;

class JointPlacement {
 public:
  explicit JointPlacement(const BalanceProblem& problem)
      : problem_(problem), levels_(MakeFamilies(*problem.ranks)) {
    FillShares();
    SortShares();
  }

  std::vector<uint32_t> Run() {
    std::vector<uint32_t> rank = Descend();
    // With few samples a rank not every phase can be met. An encoder's excess can still be moved by item, the
    // llm's cannot: the later passes trade the one for the other.
    const SwapProblem swaps{.shares = shares_,
                            .families = &levels_.front(),
                            .num_ranks = problem_.ranks->size(),
                            .cap = Caps(),
                            .passes = {{.weight = {4, 1, 1}},
                                       {.weight = {1, 1e-2f, 1e-2f}, .far_partners = 16, .llm_only = true},
                                       {.weight = {1, 1e-5f, 1e-5f}, .far_partners = 64, .llm_only = true}}};
    RepairBySwaps(swaps, rank);
    std::vector<uint32_t> rank_of_unit(rank.size());
    for (size_t i = 0; i < rank.size(); ++i) rank_of_unit[order_[i]] = rank[i];
    return rank_of_unit;
  }

 private:
  // The rank of every unit, each descending from the root. Units are on their way together, one on each
  // level, and pass every family in their order: what one unit waits for does not keep the others waiting.
  std::vector<uint32_t> Descend() {
    const size_t depth = levels_.size();
    std::vector<uint32_t> rank(shares_.size());
    std::vector<uint32_t> at(depth + 1, 0);  // [levels from the root + 1] the family that a unit has come to
    for (size_t step = 0; step < shares_.size() + depth - 1; ++step) {
      for (size_t d = std::min(depth, step + 1); d-- > 0;) {
        const size_t unit = step - d;
        if (unit >= shares_.size()) break;
        const Shares& share = shares_[unit];
        const Shares weight = {kLlmWeight * share[0], share[1], share[2]};
        at[d + 1] = levels_[depth - 1 - d][at[d]].Take(weight, share);
        if (d + 1 == depth) rank[unit] = at[depth];
      }
    }
    return rank;
  }

  // Every cost as a share of the mean load of a rank. Units without cost count a little, so that they spread
  // too.
  void FillShares() {
    shares_.assign(problem_.cost.size(), Shares{});
    const double ranks = problem_.ranks->size();
    for (size_t p = 0; p < 1 + problem_.in_view.size(); ++p) {
      const std::span<const Load> cost = p == 0 ? problem_.cost : problem_.in_view[p - 1];
      const double least = p == 0 ? 1 : 0;
      double total = 0;
      for (Load load : cost) total += static_cast<double>(load) + least;
      if (!(total > 0)) continue;
      const double factor = ranks / total;
      for (size_t i = 0; i < cost.size(); ++i) {
        shares_[i][p] = static_cast<float>((static_cast<double>(cost[i]) + least) * factor);
      }
    }
  }

  // Units are numbered by their place in this order from here on: everything after reads memory in sequence.
  void SortShares() {
    std::vector<Load> key(shares_.size());
    for (size_t i = 0; i < key.size(); ++i) {
      const float largest = std::max(shares_[i][0], std::max(shares_[i][1], shares_[i][2]));
      // Positive floats order as integers; four digits of them are order enough.
      key[i] = static_cast<Load>(std::bit_cast<uint32_t>(largest) >> 9);
    }
    order_ = DearestFirst(key);
    std::vector<Shares> sorted(shares_.size());
    for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = shares_[order_[i]];
    shares_.swap(sorted);
  }

  // The mean, or the longest unit where that is more, and somewhat less than the tolerance: above the
  // tolerance in exact numbers items move, and these are floats.
  Shares Caps() const {
    Shares cap = {1, 1, 1};
    for (const Shares& share : shares_) {
      for (int p = 0; p < kNumPhases; ++p) cap[p] = std::max(cap[p], share[p]);
    }
    for (float& c : cap) c *= static_cast<float>(1 + 0.95 * problem_.tolerance);
    return cap;
  }

  const BalanceProblem& problem_;
  std::vector<std::vector<Family>> levels_;  // leaves first
  std::vector<Shares> shares_;               // largest first
  std::vector<uint32_t> order_;              // the unit of each
};

}  // namespace

std::vector<uint32_t> PlaceJointly(const BalanceProblem& problem) { return JointPlacement(problem).Run(); }

}  // namespace evenkeel::reorder
