// The published algorithms: each against its definition, on small problems against brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <vector>

#include "reorder/balance/balance.h"
#include "reorder/balance/node_wise.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {
namespace {

std::vector<uint32_t> CountsOf(const std::vector<uint32_t>& rank, uint32_t ranks) {
  std::vector<uint32_t> counts(ranks, 0);
  for (uint32_t r : rank) ++counts[r];
  return counts;
}

// Lengths of several distributions, zeros and equal ones among them.
std::vector<uint32_t> DrawLengths(Random& random, size_t count) {
  const uint64_t kind = random.Below(6);
  std::vector<uint32_t> lengths(count);
  for (uint32_t& length : lengths) {
    switch (kind) {
      case 0:
        length = static_cast<uint32_t>(random.Below(100000));
        break;
      case 1:
        length = random.Length(7, 1, 1, 60000);
        break;
      case 2:
        length = 512;
        break;
      case 3:
        length =
            static_cast<uint32_t>(random.Below(10) == 0 ? 30000 + random.Below(9000) : random.Below(900));
        break;
      case 4:
        length = static_cast<uint32_t>(random.Below(4));
        break;
      default:
        length = random.Length(5, 2, 1, 200000);
    }
  }
  return lengths;
}

std::vector<Load> LoadsOf(const std::vector<uint32_t>& lengths) { return {lengths.begin(), lengths.end()}; }

// The method as its definition has it: every partition has all bins, and all are sorted after every merge.
Load DenseDifferencing(const std::vector<Load>& cost, uint32_t ranks) {
  std::vector<std::vector<Load>> partitions;
  for (Load c : cost) {
    partitions.emplace_back(ranks, 0);
    partitions.back()[0] = c;
  }
  const auto spread = [](const std::vector<Load>& p) { return p.front() - p.back(); };
  while (partitions.size() > 1) {
    std::sort(partitions.begin(), partitions.end(),
              [&](const auto& a, const auto& b) { return spread(a) > spread(b); });
    for (uint32_t r = 0; r < ranks; ++r) partitions[0][r] += partitions[1][ranks - 1 - r];
    std::sort(partitions[0].rbegin(), partitions[0].rend());
    partitions.erase(partitions.begin() + 1);
  }
  return partitions[0][0];
}

TEST(KarmarkarKarp, EqualsTheDenseMethod) {
  Random random(11);
  for (int i = 0; i < 300; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(9));
    // Spreads without ties, so that the order of merges is determined.
    std::vector<Load> cost(1 + random.Below(40));
    for (Load& c : cost) c = static_cast<Load>(random.Below(uint64_t{1} << 40));
    const PhaseRanks where = MakeRanks(ranks, 8);
    const BalanceProblem problem{.ranks = &where, .cost = cost};
    EXPECT_EQ(HeaviestRank(problem, KarmarkarKarp(problem)), DenseDifferencing(cost, ranks)) << i;
  }
}

TEST(KarmarkarKarp, BeatsTheGreedyWhereItIsKnownTo) {
  const PhaseRanks where = MakeRanks(2, 8);
  const std::vector<Load> cost = {8, 7, 6, 5, 4};
  const BalanceProblem problem{.ranks = &where, .cost = cost};
  EXPECT_EQ(HeaviestRank(problem, GreedyPacked(problem)), 17);
  EXPECT_EQ(HeaviestRank(problem, KarmarkarKarp(problem)), 16);
}

TEST(EqualCounts, AreKeptByEveryAlgorithmThatClaimsTo) {
  Random random(12);
  for (int i = 0; i < 300; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(20));
    const std::vector<Load> cost = LoadsOf(DrawLengths(random, random.Below(90)));
    const PhaseRanks where = MakeRanks(ranks, 8);
    const BalanceProblem problem{.ranks = &where, .cost = cost, .equal_counts = true};
    for (const char* name :
         {"karmarkar_karp", "intra_microbatch", "greedy_packed", "balance_without_moving", "node_wise"}) {
      ASSERT_TRUE(FindBalancer(name)->keeps_counts_equal);
      const std::vector<uint32_t> counts = CountsOf(FindBalancer(name)->assign(problem), ranks);
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 1u) << name << " " << i;
    }
  }
}

TEST(ToleranceZero, IsNoWorseThanTheGreedyNorKarmarkarKarp) {
#ifdef EVENKEEL_SANITIZED
  const int problems = 30;
#else
  const int problems = 300;
#endif
  Random random(13);
  for (int i = 0; i < problems; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(2 + random.Below(255));
    const std::vector<uint32_t> lengths = DrawLengths(random, ranks * (2 + random.Below(29)));
    const std::vector<Load> cost = LoadsOf(lengths);
    const PhaseRanks where = MakeRanks(ranks, 8);
    for (bool equal : {false, true}) {
      BalanceProblem problem{.ranks = &where, .cost = cost, .tolerance = 0, .equal_counts = equal};
      const Load ours = HeaviestRank(problem, BalanceWithoutMoving(problem));
      EXPECT_LE(ours, HeaviestRank(problem, GreedyPacked(problem))) << i;
      EXPECT_LE(ours, HeaviestRank(problem, KarmarkarKarp(problem))) << i;
    }
  }
}

TEST(GreedyQuadratic, LowersTheQuadraticCostAsTheIntervalGrows) {
  Random random(14);
  double without = 0, with = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<uint32_t> lengths(16 * 20);
    for (uint32_t& length : lengths) length = random.Length(7, 1, 1, 30000);
    const std::vector<Load> cost = LoadsOf(lengths);
    const PhaseRanks where = MakeRanks(16, 8);
    const auto largest_squares = [&](double tolerance) {
      BalanceProblem problem{.ranks = &where, .cost = cost, .length = lengths, .tolerance = tolerance};
      const std::vector<uint32_t> rank = GreedyQuadratic(problem);
      if (tolerance == 0) {
        EXPECT_EQ(HeaviestRank(problem, rank), HeaviestRank(problem, GreedyPacked(problem)));
      }
      std::vector<double> squares(16, 0);
      for (size_t k = 0; k < rank.size(); ++k) squares[rank[k]] += double{1} * lengths[k] * lengths[k];
      return *std::max_element(squares.begin(), squares.end());
    };
    without += largest_squares(0);
    with += largest_squares(0.1);
  }
  EXPECT_LT(with, 0.999 * without);
}

TEST(GreedyPaddedAttention, PutsTheLongestTogetherAsLongAsTheirAreaIsWithinTheBound) {
  const PhaseRanks where = MakeRanks(3, 8);
  // 30 in all over 3 ranks: the bound is 10. 6 alone (2 * 6 > 10), 5 5 together, then three of 3 would be
  // within, and the rest goes to the least sum.
  const std::vector<uint32_t> lengths = {3, 5, 6, 5, 3, 3, 2, 2, 1};
  const std::vector<Load> cost = LoadsOf(lengths);
  const BalanceProblem problem{.ranks = &where, .cost = cost, .length = lengths, .padded_attention = true};
  const std::vector<uint32_t> rank = GreedyPaddedAttention(problem);
  EXPECT_EQ(rank[2], 0u);
  EXPECT_EQ(rank[1], rank[3]);
  EXPECT_EQ(rank[1], 1u);
  EXPECT_EQ(rank[0], 2u);
  EXPECT_EQ(rank[4], 2u);
  EXPECT_EQ(rank[5], 2u);
  EXPECT_EQ(rank[6], 0u);  // sums 6, 10, 9
  EXPECT_EQ(rank[7], 0u);
  EXPECT_EQ(rank[8], 2u);
}

NodeWiseProblem DrawNodeWise(Random& random, uint32_t nodes, uint32_t per_node, uint64_t volumes) {
  NodeWiseProblem problem{.slots = std::vector<uint32_t>(nodes, per_node), .num_batches = nodes * per_node};
  for (uint32_t s = 0; s < nodes * per_node; ++s) problem.source_node.push_back(s / per_node);
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> rows;
  for (uint32_t s = 0; s < nodes * per_node; ++s) {
    for (uint64_t v = 0; v < volumes; ++v) {
      rows[{s, static_cast<uint32_t>(random.Below(problem.num_batches))}] += random.Length(6, 1, 1, 20000);
    }
  }
  for (const auto& [pair, count] : rows) problem.volumes.push_back({pair.first, pair.second, count});
  return problem;
}

uint64_t ExhaustiveEgress(const NodeWiseProblem& problem) {
  std::vector<uint32_t> node;
  for (uint32_t n = 0; n < problem.slots.size(); ++n) node.insert(node.end(), problem.slots[n], n);
  uint64_t best = LargestEgress(problem, node);
  while (std::next_permutation(node.begin(), node.end())) best = std::min(best, LargestEgress(problem, node));
  return best;
}

TEST(NodeWise, IsWithinFivePerCentOfTheOptimumAndNeverBelowTheBound) {
  Random random(15);
  double ratio = 0;
  constexpr int kProblems = 60;
  for (int i = 0; i < kProblems; ++i) {
    const NodeWiseProblem problem = DrawNodeWise(random, 3, 3, 2 + random.Below(6));
    const std::vector<uint32_t> node = AssignBatchesToNodes(problem);
    EXPECT_EQ(CountsOf(node, 3), problem.slots);
    const uint64_t optimum = ExhaustiveEgress(problem);
    EXPECT_LE(EgressBound(problem), optimum) << i;
    EXPECT_GE(LargestEgress(problem, node), optimum) << i;
    ratio += static_cast<double>(LargestEgress(problem, node)) /
             static_cast<double>(std::max<uint64_t>(1, optimum));
  }
  EXPECT_LE(ratio / kProblems, 1.05);
}

TEST(NodeWise, ChangesNoLoadAndSendsLessAway) {
  Random random(16);
  for (int i = 0; i < 20; ++i) {
    const PhaseRanks where = MakeRanks(32, 8);
    const std::vector<uint32_t> rows = DrawLengths(random, 32 * 12);
    const std::vector<Load> cost = LoadsOf(rows);
    std::vector<uint32_t> home(rows.size());
    for (uint32_t& rank : home) rank = static_cast<uint32_t>(random.Below(32));
    const Neighbours neighbours = MakeNeighbours(where);
    const BalanceProblem problem{
        .ranks = &where, .cost = cost, .neighbours = &neighbours, .home = home, .rows = rows};
    const auto egress = [&](const std::vector<uint32_t>& rank) {
      std::vector<uint64_t> sent(32, 0);
      for (size_t k = 0; k < rank.size(); ++k) {
        if (where.node[rank[k]] != where.node[home[k]]) sent[home[k]] += rows[k];
      }
      return *std::max_element(sent.begin(), sent.end());
    };
    const std::vector<uint32_t> greedy = GreedyPacked(problem), permuted = NodeWise(problem);
    EXPECT_EQ(HeaviestRank(problem, permuted), HeaviestRank(problem, greedy));
    EXPECT_LE(egress(permuted), egress(greedy));
  }
}

TEST(Balancers, AreWhatAJobMayName) {
  std::set<std::string_view> names;
  for (const Balancer& balancer : Balancers()) {
    EXPECT_TRUE(names.insert(balancer.name).second) << balancer.name << " is there twice";
    EXPECT_EQ(FindBalancer(balancer.name), &balancer) << balancer.name;
    EXPECT_NE(BalancerNames().find(balancer.name), std::string::npos) << balancer.name;
  }
  EXPECT_NE(FindBalancer(kDefaultAlgorithm), nullptr) << "what a job has that names none";
  EXPECT_EQ(FindBalancer("binary_search_padded")->assign, GreedyPadded) << "another name of the same";
  EXPECT_EQ(FindBalancer("best"), nullptr);
}

}  // namespace
}  // namespace evenkeel::reorder
