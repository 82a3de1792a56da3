// The default against the simple methods on random problems of ten kinds: it is never less even than they are, where it
// is above its tolerance, and as even as any of them where evenness alone counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "reorder/balance/balance.h"
#include "reorder/balance/balance_without_moving.h"
#include "reorder/balance/exchanges.h"
#include "tests/reorder/balance/exhaustive.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {
namespace {

uint64_t Between(Random& random, uint64_t first, uint64_t last) {
  return first + random.Below(last - first + 1);
}

constexpr int kKinds = 10;

// One cost of the given kind.
Load DrawCost(int kind, Random& random) {
  const auto pick = [&]() -> uint64_t {
    switch (kind) {
      case 0:
        return random.Length(6.4, 1.0, 1, 32768);
      case 1:
        return random.Length(6.55, 1.6, 1, 65536);
      case 2:
        return random.Below(10) < 3 ? 16384 : 256;  // two sizes
      case 3:
        return 256 * Between(random, 1, 12);  // tiles
      case 4:
        return random.Below(50) == 0 ? Between(random, 32768, 65536) : random.Length(5.7, 0.8, 1, 4096);
      case 5:
        return Between(random, 500, 1500);  // with one sample of many items
      case 6:
        return random.Below(300) == 0 ? 100000 : random.Length(6.8, 0.7, 1, 16384);  // giants
      case 7:
        return 576;  // all equal
      case 8:
        return random.Below(4) == 0 ? 0 : Between(random, 1, 9);  // tiny, and nothing
      default:
        return Between(random, 1, 4096);
    }
  };
  return static_cast<Load>(pick());
}

// A phase's problem with everything that it refers to. Half have several nodes.
struct Drawn {
  std::string what;
  PhaseRanks ranks;
  Neighbours neighbours;
  std::vector<Load> cost;
  std::vector<uint32_t> home, length, rows;
  BalanceProblem problem;

  Drawn(uint64_t seed, uint32_t most_ranks, uint32_t most_per_rank) {
    Random random(seed);
    const int kind = static_cast<int>(seed % kKinds);
    const uint32_t num_ranks = static_cast<uint32_t>(Between(random, 2, most_ranks));
    const uint32_t per_node = random.Below(2) == 0 ? num_ranks : static_cast<uint32_t>(Between(random, 1, 8));
    ranks = MakeRanks(num_ranks, per_node);
    neighbours = MakeNeighbours(ranks);
    AddItems(kind, num_ranks * static_cast<uint32_t>(Between(random, 2, most_per_rank)), random);
    what = "seed " + std::to_string(seed) + ", kind " + std::to_string(kind) + ", " +
           std::to_string(num_ranks) + " ranks, " + std::to_string(cost.size()) + " units";
    problem = {.ranks = &ranks, .cost = cost, .length = length, .rows = rows};
  }
  Drawn(const Drawn&) = delete;

  void AddItems(int kind, uint32_t count, Random& random) {
    const uint64_t skew = random.Below(4);  // 0: all on one rank
    const uint32_t crowded = static_cast<uint32_t>(random.Below(ranks.size()));
    for (uint32_t i = 0; i < count; ++i) {
      const bool crowd = skew == 0 || (kind == 5 && random.Below(3) == 0);
      home.push_back(crowd ? crowded : static_cast<uint32_t>(random.Below(ranks.size())));
      cost.push_back(DrawCost(kind, random));
      length.push_back(static_cast<uint32_t>(cost.back()));
      rows.push_back(static_cast<uint32_t>((cost.back() + 3) / 4));
    }
  }

  BalanceProblem Items(bool given) const {
    BalanceProblem out = problem;
    out.neighbours = &neighbours;
    out.home = home;
    out.homes_are_given = given;
    if (given) out.tolerance = kToleranceOfGiven;
    return out;
  }
};

Load Simple(const BalanceProblem& problem) {
  return std::min(HeaviestRank(problem, GreedyPacked(problem)),
                  HeaviestRank(problem, KarmarkarKarp(problem)));
}

uint64_t RowsMoved(const BalanceProblem& problem, const std::vector<uint32_t>& rank) {
  uint64_t rows = 0;
  for (size_t i = 0; i < rank.size(); ++i) rows += rank[i] == problem.HomeRank(i) ? 0 : problem.rows[i];
  return rows;
}

TEST(SimpleMethods, NeverBeatTheDefaultBeyondItsTolerance) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Drawn drawn(seed, 40, 30);
    for (const BalanceProblem& problem : {drawn.problem, drawn.Items(false), drawn.Items(true)}) {
      const std::vector<uint32_t> rank = BalanceWithoutMoving(problem);
      ASSERT_LE(HeaviestRank(problem, rank), std::max(CapOf(problem), Simple(problem))) << drawn.what;
    }
  }
}

TEST(SimpleMethods, NeverBeatTheDefaultOnManyRanks) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Drawn drawn(seed, 600, 20);
    for (const BalanceProblem& problem : {drawn.problem, drawn.Items(true)}) {
      const std::vector<uint32_t> rank = BalanceWithoutMoving(problem);
      ASSERT_LE(HeaviestRank(problem, rank), std::max(CapOf(problem), Simple(problem))) << drawn.what;
    }
  }
}

TEST(SimpleMethods, AreNamedWhereTheirPlacementIsTaken) {
  std::map<std::string_view, int> times;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Drawn drawn(seed, 40, 8);
    BalanceProblem nearly_even = drawn.Items(false);
    const std::vector<uint32_t> home = GreedyPacked(drawn.problem);
    nearly_even.home = home;
    for (BalanceProblem problem : {drawn.problem, drawn.Items(false), nearly_even}) {
      std::string_view taken = kDefaultAlgorithm;
      problem.taken = &taken;
      problem.weighs_rows = true;
      const std::vector<uint32_t> rank = BalanceWithoutMoving(problem);
      ++times[taken];
      if (taken == "greedy_packed" || taken == "karmarkar_karp") {
        const std::vector<uint32_t> simple = FindBalancer(taken)->assign(problem);
        ASSERT_EQ(HeaviestRank(problem, rank), HeaviestRank(problem, simple)) << drawn.what;
      } else if (taken == "none") {
        ASSERT_EQ(rank, problem.DefaultRanks()) << drawn.what;
      }
    }
  }
  for (const std::string_view method :
       {"balance_without_moving", "greedy_packed", "karmarkar_karp", "none"}) {
    EXPECT_GT(times[method], 0) << method;
  }
  EXPECT_EQ(times.size(), 4u);
}

TEST(SimpleMethods, NeverBeatZeroTolerance) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Drawn drawn(seed, 24, 20);
    for (BalanceProblem problem : {drawn.problem, drawn.Items(false)}) {
      const Load by_default = HeaviestRank(problem, BalanceWithoutMoving(problem));
      problem.tolerance = 0;
      const Load tight = HeaviestRank(problem, BalanceWithoutMoving(problem));
      ASSERT_LE(tight, std::min(by_default, Simple(problem))) << drawn.what;
    }
  }
}

// Longest processing time first with equal counts, and then every exchange of a unit of the heaviest rank that makes it
// lighter and no other as heavy.
Load GreedyWithExchanges(const BalanceProblem& problem) {
  std::vector<uint32_t> rank = IntraMicrobatch(problem);
  std::vector<Load> load(problem.ranks->size(), 0);
  for (size_t i = 0; i < rank.size(); ++i) load[rank[i]] += problem.cost[i];
  for (bool improved = true; improved;) {
    improved = false;
    const auto heaviest = static_cast<uint32_t>(std::max_element(load.begin(), load.end()) - load.begin());
    for (size_t i = 0; i < rank.size() && !improved; ++i) {
      for (size_t k = 0; k < rank.size() && !improved && rank[i] == heaviest; ++k) {
        const Load amount = problem.cost[i] - problem.cost[k];
        if (amount <= 0 || load[rank[k]] + amount >= load[heaviest]) continue;
        load[heaviest] -= amount;
        load[rank[k]] += amount;
        std::swap(rank[i], rank[k]);
        improved = true;
      }
    }
  }
  return *std::max_element(load.begin(), load.end());
}

TEST(SimpleMethods, WithExchangesHardlyBeatEqualCounts) {
  double sum = 0;
  int problems = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Drawn drawn(seed, 16, 16);
    BalanceProblem problem = drawn.problem;
    problem.equal_counts = true;
    const std::vector<uint32_t> rank = BalanceWithoutMoving(problem);
    std::vector<size_t> count(problem.ranks->size(), 0);
    for (uint32_t r : rank) ++count[r];
    ASSERT_LE(*std::max_element(count.begin(), count.end()) - *std::min_element(count.begin(), count.end()),
              1u)
        << drawn.what;
    ASSERT_LE(HeaviestRank(problem, rank), Simple(problem)) << drawn.what;
    const auto ours = static_cast<double>(HeaviestRank(problem, rank));
    const auto theirs = static_cast<double>(GreedyWithExchanges(problem));
    ASSERT_LE(ours, theirs * 1.01) << drawn.what;
    sum += theirs > 0 ? ours / theirs : 1;
    ++problems;
  }
  EXPECT_LE(sum / problems, 1.0);
}

TEST(ZeroTolerance, IsNearTheOptimumOfSmallProblems) {
  double sum = 0;
  int problems = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Drawn drawn(seed, 3, 3);
    if (drawn.cost.size() > 9) continue;
    BalanceProblem problem = drawn.problem;
    problem.tolerance = 0;
    const Load best = Exhaustive(drawn.cost, problem.ranks->size(),
                                 [&](const std::vector<Load>&, const std::vector<uint32_t>& rank, uint32_t) {
                                   return HeaviestRank(problem, rank);
                                 });
    if (best == 0) continue;
    const double ratio =
        static_cast<double>(HeaviestRank(problem, BalanceWithoutMoving(problem))) / static_cast<double>(best);
    EXPECT_LE(ratio, 1.12) << drawn.what;
    sum += ratio;
    ++problems;
  }
  EXPECT_GE(problems, 200);
  EXPECT_LE(sum / problems, 1.003);
}

TEST(HomePlacement, IsKeptWhereLittleEvennessWouldMoveMuch) {
  int kept = 0, moved_little = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Drawn drawn(seed, 4, 60);
    BalanceProblem problem = drawn.Items(false);
    problem.weighs_rows = true;
    BalanceProblem at_home = problem;
    at_home.tolerance = kToleranceOfHome;
    if (HeaviestRank(problem, problem.DefaultRanks()) > CapOf(at_home)) continue;
    const std::vector<uint32_t> rank = BalanceWithoutMoving(problem);
    const uint64_t rows = std::accumulate(drawn.rows.begin(), drawn.rows.end(), uint64_t{0});
    ASSERT_LE(static_cast<double>(RowsMoved(problem, rank)), kFewRows * static_cast<double>(rows))
        << drawn.what;
    (RowsMoved(problem, rank) == 0 ? kept : moved_little) += 1;
  }
  EXPECT_GE(kept, 10);
  EXPECT_GE(moved_little, 1);
}

TEST(EvenOut, NeverMakesTheHeaviestHeavier) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Drawn drawn(seed, 12, 12);
    const BalanceProblem& problem = drawn.problem;
    for (const bool keep_counts : {false, true}) {
      std::vector<uint32_t> rank = drawn.home;
      std::vector<size_t> before(problem.ranks->size(), 0), after = before;
      for (uint32_t r : rank) ++before[r];
      const Load heaviest = HeaviestRank(problem, rank);
      EvenOut(problem.cost, problem.ranks->size(), {.keep_counts = keep_counts}, rank);
      ASSERT_LE(HeaviestRank(problem, rank), heaviest) << drawn.what;
      for (uint32_t r : rank) ++after[r];
      if (keep_counts) {
        ASSERT_EQ(before, after) << drawn.what;
      }
    }
  }
}

TEST(EvenOut, StaysOnTheNodeWhereAsked) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Drawn drawn(seed, 24, 12);
    const BalanceProblem problem = drawn.Items(false);
    std::vector<uint32_t> rank = drawn.home;
    EvenOut(problem.cost, problem.ranks->size(),
            {.enough = CapOf(problem), .nodes = problem.ranks, .stay_on_node = true}, rank);
    for (size_t i = 0; i < rank.size(); ++i) {
      ASSERT_EQ(problem.ranks->node[rank[i]], problem.ranks->node[drawn.home[i]]) << drawn.what;
    }
    changed += rank != drawn.home;
  }
  EXPECT_GE(changed, 100);
}

TEST(EvenOut, ExchangesALargeUnitForSeveralSmallOnes) {
  // Rank 0 has two large units; only one of them for three small ones makes the ranks even.
  const std::vector<Load> cost = {50, 54, 30, 10, 8, 48};
  std::vector<uint32_t> rank = {0, 0, 1, 1, 1, 1};
  EvenOut(cost, 2, {.enough = 102}, rank);
  std::vector<Load> load(2, 0);
  for (size_t i = 0; i < cost.size(); ++i) load[rank[i]] += cost[i];
  EXPECT_LE(std::max(load[0], load[1]), 102);
}

}  // namespace
}  // namespace evenkeel::reorder
