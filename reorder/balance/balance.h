// The interface of all balancing algorithms: they assign units to ranks so that no rank has much more to do
// than another.
//
// A unit is a sample (llm) or an item (encoders). A balancer neither forms microbatches nor orders anything.
// All it has of a unit is its cost and, for items, its home: the rank or node with the llm part of the item's
// sample. One algorithm is one file; docs/planner.md explains what each is good for.
//
// Example:
//     const Balancer* balancer = FindBalancer("greedy_packed");  // null if no algorithm has the name
//     std::vector<uint32_t> rank_of_unit = balancer->Assign(problem);
//
// Thread safety: balancers have no state; call from any thread.
#pragma once

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
  std::span<const uint32_t> rows;    // [units] output rows, which node_wise counts
  // How far above the mean a rank may be; 0: as even as greedy_packed and karmarkar_karp allow, whatever must
  // move.
  double tolerance = kTolerance;
  // Counts of units per rank differ by at most one. Packed only.
  bool equal_counts = false;
  // A batch costs its sum plus, for attention, its count times the square of its longest unit.
  bool padded_attention = false;

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

class Balancer {
 public:
  virtual ~Balancer() = default;
  virtual std::string_view name() const = 0;
  // Packed items stay on their home rank unless it has too much, so that samples can be placed for them, too.
  virtual bool KeepsItemsOnHomeRank() const { return false; }
  // Chooses the node of a batch; the rank within the node does not matter.
  virtual bool KeepsBatchesOnNode() const { return false; }
  // Supports BalanceProblem::equal_counts.
  virtual bool KeepsCountsEqual() const { return false; }
  // The rank of every unit. Any problem with at least one rank has a solution.
  virtual std::vector<uint32_t> Assign(const BalanceProblem& problem) const = 0;
};

// The balancer with this name, which lives until the process ends; null if there is none.
const Balancer* FindBalancer(std::string_view name);
// The values of a phase's `algorithm` with their balancers. This is the only list of balancers.
struct NamedBalancer {
  std::string_view name;
  const Balancer* balancer;
};
std::span<const NamedBalancer> BalancersByName();
// "a, b, c", for messages.
std::string BalancerNames();
// All balancers, each once, in the order of their first names.
std::span<const Balancer* const> Balancers();

// One file per algorithm; balance.cc lists them.
const Balancer& None();
const Balancer& GreedyPacked();
const Balancer& GreedyPadded();
const Balancer& BalanceWithoutMoving();
const Balancer& KarmarkarKarp();
const Balancer& GreedyQuadratic();
const Balancer& GreedyPaddedAttention();
const Balancer& IntraMicrobatch();
const Balancer& NodeWise();

// Assigns units, heaviest first, to the least loaded rank with room for one more; counts per rank are equal.
std::vector<uint32_t> GreedyWithEqualCounts(const BalanceProblem& problem);

// Permutes the batches over ranks so that rows stay on their node. See node_wise.cc.
std::vector<uint32_t> PermuteNodeWise(const BalanceProblem& problem, const std::vector<uint32_t>& rank);

// Permutes the batches over ranks: pairs of batch and rank with the most cost already on the rank come first.
std::vector<uint32_t> BringHome(const BalanceProblem& problem, const std::vector<uint32_t>& batch);

// A lower bound of the heaviest rank of any packed placement: the mean, or the heaviest unit, or, if all
// costs are multiples of one number (tiles, for example), the mean rounded up to a multiple of it, if that
// exceeds the tolerance.
Load MinHeaviestRank(std::span<const Load> cost, size_t ranks, double tolerance);

// The load of the heaviest rank of a packed placement.
Load HeaviestRank(const BalanceProblem& problem, std::span<const uint32_t> rank);

// Partitions units into at most `batches` padded batches such that the heaviest one is as light as possible.
// Returns the batch of every unit; light units are in low batches.
std::vector<uint32_t> CutIntoBatches(std::span<const Load> cost, uint64_t batches);

// The minimum number of padded batches of at most `bound`, which must be at least the heaviest unit.
uint64_t LeastPaddedBatches(std::span<const uint32_t> lengths, uint64_t bound);

// The indices of `key`, whose values are not negative: heaviest first, equal ones by index.
std::vector<uint32_t> HeaviestFirst(std::span<const Load> key);

}  // namespace evenkeel::reorder
