// The interface of all balancing algorithms: they assign units to ranks so that no rank has much more to do
// than another.
//
// A unit is a sample (llm) or an item (encoders). A balancer neither forms microbatches nor orders anything.
// All it has of a unit is its cost and, for items, its home: the rank or node with the llm part of the item's
// sample. One algorithm is one file; docs/planner.md explains what each is good for.
//
// Example:
//     const Balancer* balancer = FindBalancer("greedy_packed");  // null if no algorithm has the name
//     std::vector<uint32_t> rank_of_unit = balancer->assign(problem);
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "reorder/layout.h"

namespace evenkeel::reorder {

// Cost in integers, so that sums are exact in any order. See Scale.
using Load = int64_t;

// How far above the mean load a rank may be before work is moved, as a fraction of the mean.
inline constexpr double kTolerance = 1.0 / 512;

// The same for items of a given placement, where moving costs rows: more imbalance is tolerated.
inline constexpr double kToleranceOfGiven = 0.0049;

// Converts costs to integers: scales by the power of two that makes `total` at most 2^51.
class Scale {
 public:
  explicit Scale(double total);
  // Rounds half up, which suffices because costs are not negative; lround would be a function call per unit.
  Load operator()(double cost) const {
    return static_cast<Load>(cost * factor_ + 0.5);  // NOLINT(bugprone-incorrect-roundings)
  }
  double factor() const { return factor_; }

 private:
  double factor_ = 1;
};

// The job's cost of a length, with negative values and NaN replaced by 0, and at most 1e200.
inline double CleanCost(const Cost& cost, uint32_t length) {
  // These comparisons compile to the CPU's min and max instructions, without branches; they are false for
  // NaN.
  const double value = cost(static_cast<double>(length));
  const double positive = value > 0 ? value : 0;
  return positive < 1e200 ? positive : 1e200;
}

// The same of a sample whose first `first` tokens are a sequence of their own, each of which costs by itself; 0: it is one.
inline double CleanCost(const Cost& cost, uint32_t length, uint32_t first) {
  if (first == 0) return CleanCost(cost, length);
  return std::min(CleanCost(cost, first) + CleanCost(cost, length - first), 1e200);
}

// A home placement that is at most this far above the mean, as a fraction of it, is kept if evening it out would move more
// than kFewRows of all rows: the time that evenness saves is then less than that of the exchange.
inline constexpr double kToleranceOfHome = 0.005;
inline constexpr double kFewRows = 0.02;

struct BalanceProblem {
  const PhaseRanks* ranks = nullptr;
  Batching batching = Batching::kPacked;
  // Padded: the number of batches per rank; a batch costs its count times its heaviest unit.
  uint32_t batches_per_rank = 1;
  std::span<const Load> cost;  // [units]
  // Costs of the same units in other phases whose placement follows from this one. [phases][units]
  std::vector<std::span<const Load>> co_balanced;
  // In those phases nothing can be moved afterwards: they count as much as this one.
  bool co_balanced_stay = false;
  // For items: the home ranks and nodes, by llm rank. For samples, which can be placed anywhere: null.
  const Neighbours* neighbours = nullptr;
  std::span<const uint32_t> home;  // [items] the llm rank of the item's sample
  // True if the homes were not chosen for balance: then much must move, and rows that leave a node are
  // minimized.
  bool homes_are_given = false;
  std::span<const uint32_t> length;  // [units] the length that the cost was computed from
  uint64_t capacity = 0;             // the lengths that a rank may have together; 0: any. See KeepCapacity
  std::span<const uint32_t> rows;    // [units] output rows, which node_wise counts
  // How far above the mean a rank may be; 0: as even as greedy_packed and karmarkar_karp allow, whatever must
  // move.
  double tolerance = kTolerance;
  // True if `tolerance` is a default, so that kToleranceOfHome applies.
  bool weighs_rows = false;
  // Counts of units per rank differ by at most one. Packed only.
  bool equal_counts = false;
  // A batch costs its sum plus, for attention, its count times the square of its longest unit.
  bool padded_attention = false;
  // Where it is not null, a method that chooses among several placements writes here whose it took: a balancer's name.
  std::string_view* taken = nullptr;

  void Take(std::string_view method) const {
    if (taken != nullptr) *taken = method;
  }
  bool ItemsHaveHomes() const { return neighbours != nullptr; }
  // The phase's rank on the global rank of item i's llm part, and its node; kNowhere if this phase has none
  // there.
  uint32_t HomeRank(size_t i) const { return neighbours->rank[home[i]]; }
  uint32_t HomeNode(size_t i) const { return neighbours->node[home[i]]; }
  // The item's rank without balancing: its home rank, or another if it has no home rank; never kNowhere.
  uint32_t DefaultRank(size_t i) const { return neighbours->default_rank[home[i]]; }
  // DefaultRank of every item.
  std::vector<uint32_t> DefaultRanks() const;
};

// A value of a phase's `algorithm`.
struct Balancer {
  std::string_view name;
  // The rank of every unit. Any problem with at least one rank has a solution.
  std::vector<uint32_t> (*assign)(const BalanceProblem& problem);
  // Packed items stay on their home rank unless it has too much, so that samples can be placed for them, too.
  bool keeps_items_on_home_rank = false;
  // Chooses the node of a batch; the rank within the node does not matter.
  bool keeps_batches_on_node = false;
  // Supports BalanceProblem::equal_counts.
  bool keeps_counts_equal = false;
};

// All of them. This is the only list.
std::span<const Balancer> Balancers();
// The balancer with this name, which lives until the process ends; null if there is none.
const Balancer* FindBalancer(std::string_view name);
// "a, b, c", for messages.
std::string BalancerNames();

// One file per algorithm.
std::vector<uint32_t> None(const BalanceProblem& problem);
std::vector<uint32_t> GreedyPacked(const BalanceProblem& problem);
std::vector<uint32_t> GreedyPadded(const BalanceProblem& problem);
std::vector<uint32_t> BalanceWithoutMoving(const BalanceProblem& problem);
std::vector<uint32_t> KarmarkarKarp(const BalanceProblem& problem);
std::vector<uint32_t> GreedyQuadratic(const BalanceProblem& problem);
std::vector<uint32_t> GreedyPaddedAttention(const BalanceProblem& problem);
std::vector<uint32_t> IntraMicrobatch(const BalanceProblem& problem);
std::vector<uint32_t> NodeWise(const BalanceProblem& problem);

// The rank of every unit: heaviest first, each to the rank with the least load that may take another one. A
// rank takes at most `most` units, and at most `num_full` ranks take that many.
std::vector<uint32_t> GreedyUpTo(std::span<const Load> cost, size_t ranks, size_t most, size_t num_full);

// Permutes the batches over ranks so that rows stay on their node. See node_wise.cc.
std::vector<uint32_t> PermuteNodeWise(const BalanceProblem& problem, const std::vector<uint32_t>& rank);

// Permutes the batches over ranks: pairs of batch and rank with the most cost already on the rank come first. Units
// without homes keep theirs.
std::vector<uint32_t> BringHome(const BalanceProblem& problem, std::vector<uint32_t> batch);

// Packed: `rank` if no rank has more than the problem's capacity, else a placement that keeps it, if one is found, the most
// even of several. A placement by longest processing time of the lengths that keeps it is always found.
std::vector<uint32_t> KeepCapacity(const BalanceProblem& problem, std::vector<uint32_t> rank);

// A lower bound of the heaviest rank of any packed placement: the mean, or the heaviest unit, or, if all
// costs are multiples of one number (tiles, for example), the mean rounded up to a multiple of it, if that
// exceeds the tolerance.
Load MinHeaviestRank(std::span<const Load> cost, size_t ranks, double tolerance);

// `load` and that share of it more, rounded down.
inline Load WithTolerance(Load load, double tolerance) {
  return load + static_cast<Load>(static_cast<double>(load) * tolerance);
}

// The load of the heaviest rank of a packed placement.
Load HeaviestRank(const BalanceProblem& problem, std::span<const uint32_t> rank);

// [batches] The loads of padded batches: the count of each times its heaviest unit.
std::vector<Load> PaddedLoads(std::span<const Load> cost, std::span<const uint32_t> batch, size_t batches);

// Partitions units into at most `batches` padded batches such that the heaviest one is as light as possible.
// Returns the batch of every unit; light units are in low batches.
std::vector<uint32_t> CutIntoBatches(std::span<const Load> cost, uint64_t batches);

// The minimum number of padded batches of at most `bound`, which must be at least the heaviest unit.
uint64_t LeastPaddedBatches(std::span<const uint32_t> lengths, uint64_t bound);

// The indices of `key`, whose values are not negative: heaviest first, equal ones by index.
std::vector<uint32_t> HeaviestFirst(std::span<const Load> key);

}  // namespace evenkeel::reorder
