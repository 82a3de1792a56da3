// The interface behind which every algorithm lives: units to ranks, so that no rank has much more to do than
// another.
//
// A unit is a sample (llm) or an item (encoders). A balancer neither forms microbatches nor orders anything,
// and it knows nothing of what a unit is beyond its cost and, where there is one, its home: the rank or node
// that holds the llm part of its sample. One algorithm is one file; see docs/planner.md for what each is good
// for.
//
//   const Balancer* balancer = FindBalancer("greedy_packed");   // null where no algorithm has the name
//   std::vector<uint32_t> rank_of_unit = balancer->Assign(problem);
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

// How far above the mean a rank may be before work is moved: 1 + 1/512.
inline constexpr double kTolerance = 1.0 / 512;

// The same for items of a given placement, where what moves costs rows: more is left where it is.
inline constexpr double kToleranceOfGiven = 0.0049;

// Turns costs into integers: a power of two is chosen such that `total` becomes at most 2^51.
class Scale {
 public:
  explicit Scale(double total);
  // Costs are not negative, and lround would be a call for each of them.
  Load operator()(double cost) const {
    return static_cast<Load>(cost * factor_ + 0.5);  // NOLINT(bugprone-incorrect-roundings)
  }
  double factor() const { return factor_; }

 private:
  double factor_ = 1;
};

// The job's cost of a length, cleaned of what is no number: negative and NaN count as 0, at most 1e200.
inline double CleanCost(const Cost& cost, uint32_t length) {
  // Written as minimum and maximum of the processor, which need no branch and mend what is no number.
  const double value = cost(static_cast<double>(length));
  const double positive = value > 0 ? value : 0;
  return positive < 1e200 ? positive : 1e200;
}

struct BalanceProblem {
  const PhaseRanks* ranks = nullptr;
  Batching batching = Batching::kPacked;
  // Padded: how many batches a rank runs; a batch costs its count times its heaviest unit.
  uint32_t batches_per_rank = 1;
  std::span<const Load> cost;  // [units]
  // Costs of the same units in other phases that a placement on these ranks also decides. [phases][units]
  std::vector<std::span<const Load>> co_balanced;
  // Items have homes, where the llm part of their sample lives; where samples go is free, and this is null.
  const Neighbours* neighbours = nullptr;
  std::span<const uint32_t> home;  // [items] the llm rank of their sample
  // The homes were not chosen for balance, much must leave, and what leaves its node is chosen for few rows.
  bool homes_are_given = false;
  std::span<const uint32_t> length;  // [units] what the cost was computed from
  std::span<const uint32_t> rows;    // [units] output rows; what node_wise counts
  // How far above the mean a rank may be; 0: as even as greedy_packed and karmarkar_karp can, whatever moves.
  double tolerance = kTolerance;
  // Every rank takes as many units as any other, or one more. Packed only.
  bool equal_counts = false;
  // A batch costs its sum and, for attention, its count times the square of its longest.
  bool padded_attention = false;

  bool ItemsHaveHomes() const { return neighbours != nullptr; }
  // The rank on the same global rank as the llm part of item i, and its node; each kNowhere where this phase
  // has none there.
  uint32_t HomeRank(size_t i) const { return neighbours->rank[home[i]]; }
  uint32_t HomeNode(size_t i) const { return neighbours->node[home[i]]; }
  // Where the item goes if nothing is balanced: its home rank, or if it has none another; never kNowhere.
  uint32_t DefaultRank(size_t i) const { return neighbours->default_rank[home[i]]; }
  // The same for every item.
  std::vector<uint32_t> DefaultRanks() const;
};

class Balancer {
 public:
  virtual ~Balancer() = default;
  virtual std::string_view name() const = 0;
  // Packed items stay on their home ranks unless these have too much: samples can be placed for them, too.
  virtual bool KeepsItemsOnHomeRank() const { return false; }
  // Chooses the node of a batch; which rank of the node has it does not matter.
  virtual bool KeepsBatchesOnNode() const { return false; }
  // Can give every rank as many units as any other, or one more.
  virtual bool KeepsCountsEqual() const { return false; }
  // The rank of every unit. Any problem with at least one rank has a solution.
  virtual std::vector<uint32_t> Assign(const BalanceProblem& problem) const = 0;
};

// The balancer of that name, valid for ever; null where there is none.
const Balancer* FindBalancer(std::string_view name);
// The names that a phase's `algorithm` may have, and what each means: the one list of balancers.
struct NamedBalancer {
  std::string_view name;
  const Balancer* balancer;
};
std::span<const NamedBalancer> BalancersByName();
// "a, b, c", for messages.
std::string BalancerNames();
// Each once, by its first name.
std::span<const Balancer* const> Balancers();

// One file each; balance.cc lists them.
const Balancer& None();
const Balancer& GreedyPacked();
const Balancer& GreedyPadded();
const Balancer& BalanceWithoutMoving();
const Balancer& KarmarkarKarp();
const Balancer& GreedyQuadratic();
const Balancer& GreedyPaddedAttention();
const Balancer& IntraMicrobatch();
const Balancer& NodeWise();

// Heaviest first, each to the rank that has least of those with room for one more; counts are equal.
std::vector<uint32_t> GreedyWithEqualCounts(const BalanceProblem& problem);

// The same batches on other ranks: a permutation that keeps rows on their node. See node_wise.cc.
std::vector<uint32_t> PermuteNodeWise(const BalanceProblem& problem, const std::vector<uint32_t>& rank);

// The same batches on other ranks: pairs of batch and rank with most cost already on that rank first.
std::vector<uint32_t> BringHome(const BalanceProblem& problem, const std::vector<uint32_t>& batch);

// No placement, packed, has a heaviest rank below this: the mean, or the heaviest unit, or the mean rounded
// up to the unit that all costs are multiples of, where that is more than the tolerance allows: tiles that
// are all alike, say.
Load MinHeaviestRank(std::span<const Load> cost, size_t ranks, double tolerance);

// The load of the heaviest rank, packed.
Load HeaviestRank(const BalanceProblem& problem, std::span<const uint32_t> rank);

// Cuts units into at most `batches` padded batches such that the heaviest batch is as light as can be; the
// batch of every unit, light units in low batches.
std::vector<uint32_t> CutIntoBatches(std::span<const Load> cost, uint64_t batches);

// The fewest padded batches of at most `bound`, which is not below the heaviest unit.
uint64_t LeastPaddedBatches(std::span<const uint32_t> lengths, uint64_t bound);

// Indices of `key`, none of them negative, heaviest first, equal ones by index.
std::vector<uint32_t> HeaviestFirst(std::span<const Load> key);

}  // namespace evenkeel::reorder
