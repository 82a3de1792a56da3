// Ours, the default. The papers balance each phase by itself and then pay to move encoder outputs to the llm.
// A service that delivers any input anywhere need not: samples are placed with all co-balanced phases
// considered (joint_placement), items stay where the llm part of their sample lives, and only what still is
// too much on a rank leaves it (move_excess).
//
// Padded batches leave no such choice, because like must be batched with like: they are cut as by
// greedy_padded, and then each goes to the rank from which most of its rows need not leave.
#include <algorithm>
#include <utility>

#include "reorder/balance/balance.h"
#include "reorder/balance/joint_placement.h"
#include "reorder/balance/move_excess.h"

namespace evenkeel::reorder {
namespace {

Load HeaviestPadded(const BalanceProblem& problem, const std::vector<uint32_t>& rank) {
  std::vector<Load> count(problem.ranks->size(), 0), heaviest(problem.ranks->size(), 0);
  for (size_t i = 0; i < rank.size(); ++i) {
    ++count[rank[i]];
    heaviest[rank[i]] = std::max(heaviest[rank[i]], problem.cost[i]);
  }
  Load most = 0;
  for (size_t r = 0; r < count.size(); ++r) most = std::max(most, count[r] * heaviest[r]);
  return most;
}

class BalanceWithoutMovingBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "balance_without_moving"; }
  bool KeepsItemsOnHomeRank() const override { return true; }
  bool KeepsCountsEqual() const override { return true; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    if (problem.batching == Batching::kPadded) return AssignPadded(problem);
    if (problem.padded_attention) {
      std::vector<uint32_t> batch = GreedyPaddedAttention().Assign(problem);
      return problem.ItemsHaveHomes() ? BringHome(problem, batch) : batch;
    }
    if (problem.equal_counts || problem.tolerance <= 0) return AssignTight(problem);
    return problem.ItemsHaveHomes() ? MoveExcess(problem) : PlaceJointly(problem);
  }

 private:
  // Only the heaviest rank counts: the better of the two classics. Then batches come home as they are.
  static std::vector<uint32_t> AssignTight(const BalanceProblem& problem) {
    std::vector<uint32_t> batch = GreedyPacked().Assign(problem);
    std::vector<uint32_t> other = KarmarkarKarp().Assign(problem);
    if (HeaviestRank(problem, other) < HeaviestRank(problem, batch)) batch.swap(other);
    return problem.ItemsHaveHomes() ? BringHome(problem, batch) : batch;
  }

  static std::vector<uint32_t> AssignPadded(const BalanceProblem& problem) {
    std::vector<uint32_t> batch = GreedyPadded().Assign(problem);
    if (!problem.ItemsHaveHomes()) return batch;
    std::vector<uint32_t> kept = problem.DefaultRanks();
    const Load best = HeaviestPadded(problem, batch);
    const Load enough = best + static_cast<Load>(static_cast<double>(best) * kTolerance);
    if (HeaviestPadded(problem, kept) <= enough) return kept;
    return BringHome(problem, batch);
  }
};

}  // namespace

std::vector<uint32_t> BringHome(const BalanceProblem& problem, const std::vector<uint32_t>& batch) {
  const uint32_t ranks = problem.ranks->size();
  std::vector<std::pair<uint64_t, Load>> at_home;  // (batch * ranks + rank, cost)
  for (size_t i = 0; i < batch.size(); ++i) {
    at_home.emplace_back(uint64_t{batch[i]} * ranks + problem.DefaultRank(i), problem.cost[i]);
  }
  std::sort(at_home.begin(), at_home.end());
  std::vector<std::pair<Load, uint64_t>> pairs;  // (-cost, batch * ranks + rank)
  for (const auto& [pair, cost] : at_home) {
    if (pairs.empty() || pairs.back().second != pair) pairs.emplace_back(0, pair);
    pairs.back().first -= cost;
  }
  std::sort(pairs.begin(), pairs.end());
  std::vector<uint32_t> rank_of(ranks, kNowhere);
  std::vector<bool> taken(ranks, false);
  for (const auto& [cost, pair] : pairs) {
    const uint32_t b = static_cast<uint32_t>(pair / ranks), r = static_cast<uint32_t>(pair % ranks);
    if (rank_of[b] != kNowhere || taken[r]) continue;
    rank_of[b] = r;
    taken[r] = true;
  }
  for (uint32_t b = 0, r = 0; b < ranks; ++b) {
    if (rank_of[b] != kNowhere) continue;
    while (taken[r]) ++r;
    rank_of[b] = r;
    taken[r] = true;
  }
  std::vector<uint32_t> rank(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) rank[i] = rank_of[batch[i]];
  return rank;
}

const Balancer& BalanceWithoutMoving() {
  static const BalanceWithoutMovingBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
