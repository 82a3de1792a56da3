// Ours, the default. The papers balance each phase by itself and then pay to move encoder outputs to the llm.
// A service that delivers any input anywhere need not: samples are placed with all co-balanced phases
// considered (joint_placement), items stay where the llm part of their sample lives, and only what still is
// too much on a rank leaves it (move_excess).
//
// One rule holds for every packed phase: what the simple methods (longest processing time first, Karmarkar-Karp) make is
// taken where its heaviest rank is lighter and ours is above the tolerance.
//
// Padded batches leave no such choice, because like must be batched with like: they are cut as by
// greedy_padded, and then each goes to the rank from which most of its rows need not leave.
#include "reorder/balance/balance_without_moving.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "reorder/balance/exchanges.h"

namespace evenkeel::reorder {
namespace {

Load HeaviestPadded(const BalanceProblem& problem, const std::vector<uint32_t>& rank) {
  const std::vector<Load> load = PaddedLoads(problem.cost, rank, problem.ranks->size());
  return *std::max_element(load.begin(), load.end());
}

// Whether no batch of the default ranks is heavier than the heaviest of `batch`, or hardly.
bool DefaultRanksSuffice(const BalanceProblem& problem, const std::vector<uint32_t>& batch) {
  const Load enough = WithTolerance(HeaviestPadded(problem, batch), kTolerance);
  return HeaviestPadded(problem, problem.DefaultRanks()) <= enough;
}

// Makes the heaviest rank of `rank` lighter by exchanges, at most down to `enough`; its load afterwards.
Load Even(const BalanceProblem& problem, Load enough, std::vector<uint32_t>& rank) {
  EvenOut(problem.cost, problem.ranks->size(),
          {.enough = enough,
           .keep_counts = problem.equal_counts,
           .nodes = problem.ItemsHaveHomes() ? problem.ranks : nullptr},
          rank);
  return HeaviestRank(problem, rank);
}

std::vector<uint32_t> AssignByTolerance(const BalanceProblem& problem) {
  return problem.ItemsHaveHomes() ? MoveExcess(problem) : PlaceJointly(problem);
}

// Whether the home placement is good enough for the rows that `rank` would move; see kToleranceOfHome.
bool StayingIsBetter(const BalanceProblem& problem, std::span<const uint32_t> rank) {
  if (!problem.weighs_rows || !problem.ItemsHaveHomes()) return false;
  uint64_t rows = 0, moved = 0;
  for (size_t i = 0; i < rank.size(); ++i) {
    if (problem.HomeRank(i) == kNowhere) return false;
    rows += problem.rows[i];
    if (rank[i] != problem.HomeRank(i)) moved += problem.rows[i];
  }
  if (static_cast<double>(moved) <= kFewRows * static_cast<double>(rows)) return false;
  BalanceProblem at_home = problem;
  at_home.tolerance = kToleranceOfHome;
  return HeaviestRank(problem, problem.DefaultRanks()) <= CapOf(at_home);
}

// Up to the tolerance, few rows move. Beyond it the heaviest rank counts: exchanges, and then the general rule.
std::vector<uint32_t> AssignBeyondTolerance(const BalanceProblem& problem) {
  std::vector<uint32_t> rank = AssignByTolerance(problem);
  // Where items cannot move afterwards, the heaviest rank of this phase alone does not decide.
  if (problem.co_balanced_stay) return rank;
  const Load cap = CapOf(problem);
  if (HeaviestRank(problem, rank) <= cap) return rank;
  const Load heaviest = Even(problem, cap, rank);
  if (heaviest <= cap) return rank;
  Load least = heaviest;
  for (const std::string_view method : kSimpleMethods) {
    std::vector<uint32_t> simple = FindBalancer(method)->assign(problem);
    const Load simply = HeaviestRank(problem, simple);
    if (simply >= least) continue;
    rank = BringHome(problem, std::move(simple));
    least = simply;
    problem.Take(method);
  }
  return rank;
}

std::vector<uint32_t> AssignWithTolerance(const BalanceProblem& problem) {
  std::vector<uint32_t> rank = AssignBeyondTolerance(problem);
  if (!StayingIsBetter(problem, rank)) return rank;
  problem.Take("none");
  return problem.DefaultRanks();
}

// Only the heaviest rank counts: the best of all ways, each improved by exchanges. Among equally good ones, the one that
// moves least.
std::vector<uint32_t> AssignTight(const BalanceProblem& problem) {
  const Load bound = MinHeaviestRank(problem.cost, problem.ranks->size(), 0);
  std::vector<uint32_t> best;
  Load least = 0;
  const auto consider = [&](std::vector<uint32_t> rank, std::string_view method) {
    const Load heaviest = Even(problem, bound, rank);
    if (!best.empty() && heaviest >= least) return;
    best = std::move(rank);
    least = heaviest;
    problem.Take(method);
  };
  if (!problem.equal_counts) {
    std::string_view taken = kDefaultAlgorithm;
    BalanceProblem tolerant = problem;
    tolerant.tolerance = kTolerance;
    tolerant.taken = &taken;
    std::vector<uint32_t> rank = AssignBeyondTolerance(tolerant);
    consider(std::move(rank), taken);
  }
  for (const std::string_view method : kSimpleMethods) {
    if (best.empty() || least > bound)
      consider(BringHome(problem, FindBalancer(method)->assign(problem)), method);
  }
  return best;
}

}  // namespace

std::vector<uint32_t> BalanceWithoutMoving(const BalanceProblem& problem) {
  if (problem.batching == Batching::kPadded) {
    const std::vector<uint32_t> batch = GreedyPadded(problem);
    if (problem.ItemsHaveHomes() && DefaultRanksSuffice(problem, batch)) return problem.DefaultRanks();
    return BringHome(problem, batch);
  }
  if (problem.padded_attention) return BringHome(problem, GreedyPaddedAttention(problem));
  if (problem.equal_counts || problem.tolerance == 0) return AssignTight(problem);
  return AssignWithTolerance(problem);
}

Load CapOf(const BalanceProblem& problem) {
  return WithTolerance(MinHeaviestRank(problem.cost, problem.ranks->size(), problem.tolerance),
                       problem.tolerance);
}

std::vector<uint32_t> BringHome(const BalanceProblem& problem, std::vector<uint32_t> batch) {
  if (!problem.ItemsHaveHomes()) return batch;
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
