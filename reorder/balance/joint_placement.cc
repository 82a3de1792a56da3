// Our own method for samples: in descending order of their largest share of any phase, each goes to the rank
// where it adds least to the sum over the phases of squared loads, so that a sample with much of one phase
// goes where that phase has room. If ranks are balanced in all phases at once, items can stay on the rank of
// their sample.
//
// Ranks are the leaves of a tree of small groups, and a sample descends from the root to the best child:
// O(log ranks) per sample. Excess above the tolerance is then repaired by exchanges between two ranks.
#include <algorithm>
#include <bit>
#include <numeric>

#include "reorder/balance/balance_without_moving.h"
#include "reorder/balance/rank_tree.h"
#include "reorder/balance/swaps.h"

namespace evenkeel::reorder {
namespace {

// The costs of one phase, and their conversion to shares of a rank's mean load.
struct Column {
  std::span<const Load> cost;  // [units]
  double added = 0;            // added to every cost, so that units without cost are spread, too
  double factor = 0;
  Load sum = 0;
  Load heaviest = 0;

  Column(std::span<const Load> cost, double added, double ranks)
      : cost(cost), added(added), sum(std::accumulate(cost.begin(), cost.end(), Load{0})) {
    for (Load c : cost) heaviest = std::max(heaviest, c);
    const double total = static_cast<double>(sum) + added * static_cast<double>(cost.size());
    factor = total > 0 ? ranks / total : 0;
  }
  float ShareOf(Load load) const { return static_cast<float>((static_cast<double>(load) + added) * factor); }
};

// The largest share of a unit to about two decimal digits, which are precise enough: non-negative floats have
// the same order as the integers of their bits.
constexpr int kDroppedBits = 17;
uint32_t KeyOf(std::span<const float> shares) {
  return std::bit_cast<uint32_t>(*std::max_element(shares.begin(), shares.end())) >> kDroppedBits;
}

class JointPlacement {
 public:
  explicit JointPlacement(const BalanceProblem& problem) : problem_(problem) {
    const double ranks = problem.ranks->size();
    columns_.emplace_back(problem.cost, 1, ranks);
    for (std::span<const Load> cost : problem.co_balanced) columns_.emplace_back(cost, 0, ranks);
  }

  std::vector<uint32_t> Run() {
    const std::vector<uint32_t> order = LargestFirst();
    ShareTable units(order.size(), columns_.size());
    for (size_t i = 0; i < order.size(); ++i) FillShares(order[i], units.row(i));
    RankTree tree(*problem_.ranks, columns_.size());
    std::vector<uint32_t> rank = tree.Place(units);
    const ShareTable load = tree.Loads();
    const std::vector<std::vector<uint32_t>> groups = tree.LeafGroups();
    RepairBySwaps({.units = units,
                   .load = load,
                   .groups = groups,
                   .cap = Caps(),
                   .passes = problem_.co_balanced_stay ? AllAlike() : LlmFirst()},
                  rank);
    std::vector<uint32_t> rank_of_unit(order.size());
    for (size_t i = 0; i < order.size(); ++i) rank_of_unit[order[i]] = rank[i];
    return rank_of_unit;
  }

 private:
  // With few samples per rank not every phase can be balanced. An encoder's excess can still be moved item by
  // item, the llm's cannot, so the later passes reduce the llm's excess at the encoders' expense.
  static std::vector<SwapPass> LlmFirst() {
    return {{.llm_weight = 4},
            {.encoder_weight = 1e-2f, .far_partners = 16, .llm_only = true},
            {.encoder_weight = 1e-5f, .far_partners = 64, .llm_only = true}};
  }
  static std::vector<SwapPass> AllAlike() { return {{}, {.far_partners = 16}, {.far_partners = 64}}; }

  void FillShares(uint32_t unit, std::span<float> shares) const {
    for (size_t p = 0; p < columns_.size(); ++p) shares[p] = columns_[p].ShareOf(columns_[p].cost[unit]);
  }

  // The units in descending order of their key, equal ones by number.
  std::vector<uint32_t> LargestFirst() const {
    std::vector<Load> key(problem_.cost.size());
    std::vector<float> shares(columns_.size());
    for (uint32_t i = 0; i < key.size(); ++i) {
      FillShares(i, shares);
      key[i] = KeyOf(shares);
    }
    return HeaviestFirst(key);
  }

  // The load that a rank may have: a lower bound of the heaviest rank plus somewhat less than the tolerance.
  // Items move as soon as the exact tolerance is exceeded, and these are rounded floats.
  std::vector<float> Caps() const {
    const size_t ranks = problem_.ranks->size();
    std::vector<float> caps;
    for (const Column& column : columns_) {
      float cap = column.cost.empty() ? 1 : std::max(1.0f, column.ShareOf(column.heaviest));
      if (column.sum > 0) {
        const Load least = MinHeaviestRank(column.cost, ranks, problem_.tolerance);
        cap = std::max(cap, static_cast<float>(static_cast<double>(least) * static_cast<double>(ranks) /
                                               static_cast<double>(column.sum)));
      }
      caps.push_back(cap * static_cast<float>(1 + 0.95 * problem_.tolerance));
    }
    return caps;
  }

  const BalanceProblem& problem_;
  std::vector<Column> columns_;  // [phases] the llm first
};

}  // namespace

std::vector<uint32_t> PlaceJointly(const BalanceProblem& problem) { return JointPlacement(problem).Run(); }

}  // namespace evenkeel::reorder
