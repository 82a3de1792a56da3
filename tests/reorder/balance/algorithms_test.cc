// Each algorithm alone, against brute force where the problem is small.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reorder/balance/balance.h"
#include "reorder/microbatch/microbatches.h"
#include "tests/reorder/balance/exhaustive.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {
namespace {

std::vector<Load> LoadsOf(const std::vector<Load>& cost, const std::vector<uint32_t>& rank, uint32_t ranks) {
  std::vector<Load> loads(ranks, 0);
  for (size_t i = 0; i < cost.size(); ++i) loads[rank[i]] += cost[i];
  return loads;
}

Load Packed(const std::vector<Load>& cost, const std::vector<uint32_t>& rank, uint32_t ranks) {
  const std::vector<Load> loads = LoadsOf(cost, rank, ranks);
  return *std::max_element(loads.begin(), loads.end());
}

std::vector<Load> DrawCosts(Random& random, size_t count, uint64_t bound) {
  std::vector<Load> cost(count);
  for (Load& c : cost) c = static_cast<Load>(random.Below(bound));
  return cost;
}

TEST(GreedyPadded, EqualsTheExhaustiveOptimum) {
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(4));
    const std::vector<Load> cost =
        DrawCosts(random, 1 + random.Below(ranks == 4 ? 7 : 8), 2 + random.Below(40));
    const PhaseRanks where = MakeRanks(ranks, 8);
    const BalanceProblem problem{.ranks = &where, .batching = Batching::kPadded, .cost = cost};
    EXPECT_EQ(Padded(cost, GreedyPadded(problem), ranks), Exhaustive(cost, ranks, Padded)) << i;
  }
}

// Every multiset of up to six costs of up to six, on up to four ranks.
TEST(GreedyPadded, EqualsTheExhaustiveOptimumOfEverySmallProblem) {
  constexpr Load kDearest = 6;
  for (size_t count = 1; count <= 6; ++count) {
    std::vector<Load> cost(count, 0);
    for (;;) {
      for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
        const PhaseRanks where = MakeRanks(ranks, 8);
        const BalanceProblem problem{.ranks = &where, .batching = Batching::kPadded, .cost = cost};
        ASSERT_EQ(Padded(cost, GreedyPadded(problem), ranks), Exhaustive(cost, ranks, Padded))
            << ::testing::PrintToString(cost) << " on " << ranks;
      }
      // The next one in ascending order: the last cost that can grow, and those after it to as much.
      size_t i = count;
      while (i > 0 && cost[i - 1] == kDearest) --i;
      if (i == 0) break;
      std::fill(cost.begin() + static_cast<ptrdiff_t>(i) - 1, cost.end(), cost[i - 1] + 1);
    }
  }
}

TEST(GreedyPacked, IsWithinFourThirdsOfTheExhaustiveOptimum) {
  Random random(2);
  for (int i = 0; i < 500; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(4));
    const std::vector<Load> cost =
        DrawCosts(random, 1 + random.Below(ranks == 4 ? 7 : 8), 2 + random.Below(40));
    const PhaseRanks where = MakeRanks(ranks, 8);
    const BalanceProblem problem{.ranks = &where, .cost = cost};
    // 4/3 - 1/(3 ranks), in integers
    EXPECT_LE(3 * ranks * Packed(cost, GreedyPacked(problem), ranks),
              (4 * ranks - 1) * Exhaustive(cost, ranks, Packed))
        << i;
  }
}

TEST(GreedyPadded, DealsSeveralBatchesToEveryRank) {
  Random random(3);
  const std::vector<Load> cost = DrawCosts(random, 200, 1000);
  const PhaseRanks where = MakeRanks(5, 8);
  const BalanceProblem problem{
      .ranks = &where, .batching = Batching::kPadded, .batches_per_rank = 4, .cost = cost};
  const std::vector<uint32_t> rank = GreedyPadded(problem);
  const std::vector<uint32_t> batch = CutIntoBatches(cost, 20);
  const Load bound = Padded(cost, batch, 20);
  for (uint32_t r = 0; r < 5; ++r) {
    std::vector<Load> mine;
    for (size_t i = 0; i < cost.size(); ++i) {
      if (rank[i] == r) mine.push_back(cost[i]);
    }
    EXPECT_LE(Padded(mine, CutIntoBatches(mine, 4), 4), bound);
  }
}

TEST(BalanceWithoutMoving, MovesNothingThatIsNotExcess) {
  // Rank 0 has 20 units of 10, the others 10: the mean is 112.5, and 12 units are the least that some rank
  // must have.
  const PhaseRanks where = MakeRanks(8, 4);
  std::vector<Load> cost;
  std::vector<uint32_t> home;
  for (uint32_t r = 0; r < 8; ++r) {
    for (uint32_t k = 0; k < (r == 0 ? 20u : 10u); ++k) {
      cost.push_back(10);
      home.push_back(r);
    }
  }
  const Neighbours neighbours = MakeNeighbours(where);
  const BalanceProblem problem{.ranks = &where, .cost = cost, .neighbours = &neighbours, .home = home};
  const std::vector<uint32_t> rank = BalanceWithoutMoving(problem);
  EXPECT_LE(Packed(cost, rank, 8), 120);
  size_t moved = 0, crossed = 0;
  for (size_t i = 0; i < rank.size(); ++i) {
    moved += rank[i] != home[i];
    crossed += rank[i] / 4 != home[i] / 4;
  }
  // Eight units leave rank 0. Its three neighbours can take six, to twelve each.
  EXPECT_LE(moved, 9u);
  EXPECT_LE(crossed, 6u);
}

TEST(BalanceWithoutMoving, LeavesBalancedItemsAtHome) {
  const PhaseRanks where = MakeRanks(16, 8);
  std::vector<Load> cost(160, 7);
  std::vector<uint32_t> home(160), node(160);
  for (uint32_t i = 0; i < 160; ++i) home[i] = i % 16, node[i] = home[i] / 8;
  const Neighbours neighbours = MakeNeighbours(where);
  const BalanceProblem problem{.ranks = &where, .cost = cost, .neighbours = &neighbours, .home = home};
  EXPECT_EQ(BalanceWithoutMoving(problem), home);
}

TEST(SplitIntoMicrobatches, KeepsPackedAndPaddedCapacity) {
  Random random(4);
  for (int i = 0; i < 500; ++i) {
    const bool padded = random.Below(2) == 0;
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(4));
    const size_t samples = random.Below(40);
    std::vector<uint32_t> rank(samples), tokens(samples);
    std::vector<Load> cost(samples);
    uint64_t longest = 1;
    for (size_t s = 0; s < samples; ++s) {
      rank[s] = static_cast<uint32_t>(random.Below(ranks));
      tokens[s] = static_cast<uint32_t>(random.Below(100));
      cost[s] = tokens[s];
      longest = std::max<uint64_t>(longest, tokens[s]);
    }
    const SplitProblem problem{.num_ranks = ranks,
                               .rank = rank,
                               .tokens = tokens,
                               .cost = cost,
                               .batching = padded ? Batching::kPadded : Batching::kPacked,
                               .capacity_tokens = longest + random.Below(200),
                               .count_multiple = static_cast<uint32_t>(random.Below(4)),
                               .co_balanced = {cost}};
    const Split split = SplitIntoMicrobatches(problem);
    std::vector<uint64_t> sum(ranks * split.num_microbatches), count(sum.size()), most(sum.size());
    for (size_t s = 0; s < samples; ++s) {
      ASSERT_LT(split.microbatch[s], split.num_microbatches);
      const size_t b = rank[s] * split.num_microbatches + split.microbatch[s];
      sum[b] += tokens[s];
      ++count[b];
      most[b] = std::max<uint64_t>(most[b], tokens[s]);
    }
    for (size_t b = 0; b < sum.size(); ++b) {
      EXPECT_LE(padded ? count[b] * most[b] : sum[b], problem.capacity_tokens);
    }
  }
}

}  // namespace
}  // namespace evenkeel::reorder
