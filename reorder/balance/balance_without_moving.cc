// Ours, the default. The papers balance each phase by itself and then pay to move encoder outputs to the llm.
// A service that delivers any input anywhere need not: samples are placed with all co-balanced phases
// considered (joint_placement), items stay where the llm part of their sample lives, and only what still is
// too much on a rank leaves it (move_excess).
//
// Padded batches leave no such choice, because like must be batched with like: they are cut as by
// greedy_padded, and then each goes to the rank from which most of its rows need not leave.
#include "reorder/balance/balance_without_moving.h"

#include <algorithm>
#include <utility>

namespace evenkeel::reorder {
namespace {

Load HeaviestPadded(const BalanceProblem& problem, const std::vector<uint32_t>& rank) {
  const std::vector<Load> load = PaddedLoads(problem.cost, rank, problem.ranks->size());
  return *std::max_element(load.begin(), load.end());
}

// Whether no batch of the default ranks is heavier than the heaviest of `batch`, or hardly.
bool DefaultRanksSuffice(const BalanceProblem& problem, const std::vector<uint32_t>& batch) {
  const Load best = HeaviestPadded(problem, batch);
  const Load enough = best + static_cast<Load>(static_cast<double>(best) * kTolerance);
  return HeaviestPadded(problem, problem.DefaultRanks()) <= enough;
}

// Only the heaviest rank counts: the better of the two classics.
std::vector<uint32_t> AssignTight(const BalanceProblem& problem) {
  std::vector<uint32_t> batch = GreedyPacked(problem), other = KarmarkarKarp(problem);
  return HeaviestRank(problem, other) < HeaviestRank(problem, batch) ? other : batch;
}

}  // namespace

std::vector<uint32_t> BalanceWithoutMoving(const BalanceProblem& problem) {
  const bool padded = problem.batching == Batching::kPadded;
  if (!padded && !problem.padded_attention && !problem.equal_counts && problem.tolerance > 0) {
    return problem.ItemsHaveHomes() ? MoveExcess(problem) : PlaceJointly(problem);
  }
  // Batches come home as they are.
  const std::vector<uint32_t> batch = padded                     ? GreedyPadded(problem)
                                      : problem.padded_attention ? GreedyPaddedAttention(problem)
                                                                 : AssignTight(problem);
  if (!problem.ItemsHaveHomes()) return batch;
  return padded && DefaultRanksSuffice(problem, batch) ? problem.DefaultRanks() : BringHome(problem, batch);
}

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

}  // namespace evenkeel::reorder
