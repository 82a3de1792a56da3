// The tree of rank groups and the repair by exchanges, against plain sums and plain searches.
#include "reorder/balance/rank_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "reorder/balance/swaps.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {
namespace {

// Units of which some have much in one phase, largest first; 1 is the mean of a rank.
ShareTable DrawUnits(Random& random, size_t phases, uint32_t ranks, uint32_t count) {
  std::vector<std::vector<float>> rows(count, std::vector<float>(phases));
  for (size_t p = 0; p < phases; ++p) {
    float sum = 0;
    for (std::vector<float>& row : rows) {
      row[p] = static_cast<float>(1 + random.Below(random.Below(3) == 0 ? 4000 : 500));
      sum += row[p];
    }
    for (std::vector<float>& row : rows) row[p] *= static_cast<float>(ranks) / sum;
  }
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return *std::max_element(a.begin(), a.end()) > *std::max_element(b.begin(), b.end());
  });
  ShareTable units(count, phases);
  for (size_t u = 0; u < count; ++u) std::copy(rows[u].begin(), rows[u].end(), units.row(u).begin());
  return units;
}

ShareTable SumsOf(const ShareTable& units, const std::vector<uint32_t>& rank, uint32_t ranks) {
  ShareTable sums(ranks, units.num_phases());
  for (size_t u = 0; u < rank.size(); ++u) {
    for (size_t p = 0; p < units.num_phases(); ++p) sums.row(rank[u])[p] += units.row(u)[p];
  }
  return sums;
}

float Fullest(const ShareTable& loads, size_t phase) {
  float fullest = 0;
  for (size_t r = 0; r < loads.num_rows(); ++r) fullest = std::max(fullest, loads.row(r)[phase]);
  return fullest;
}

TEST(RankTree, LoadsAreTheSumsOfWhatWasPlaced) {
  Random random(18);
  for (size_t phases : {1u, 3u, 6u}) {
    const PhaseRanks where = MakeRanks(100, 8);
    const ShareTable units = DrawUnits(random, phases, 100, 3000);
    RankTree tree(where, phases);
    const std::vector<uint32_t> rank = tree.Place(units);
    EXPECT_EQ(tree.Loads(), SumsOf(units, rank, 100)) << phases;
  }
}

// Within one group the tree is a plain greedy: the rank with the least weighted sum of share * load.
TEST(RankTree, PlacesInOneGroupWhereTheUnitAddsLeast) {
  Random random(19);
  for (size_t phases : {1u, 3u, 6u}) {
    const uint32_t ranks = 8;
    const ShareTable units = DrawUnits(random, phases, ranks, 200);
    const PhaseRanks where = MakeRanks(ranks, 8);
    const std::vector<uint32_t> rank = RankTree(where, phases).Place(units);
    ShareTable load(ranks, phases);
    for (size_t u = 0; u < rank.size(); ++u) {
      const auto growth = [&](uint32_t r) {
        float sum = 0;
        for (size_t p = 0; p < phases; ++p) {
          sum += (p == 0 ? kLlmWeight : 1) * units.row(u)[p] * load.row(r)[p];
        }
        return sum;
      };
      float least = std::numeric_limits<float>::max();
      for (uint32_t r = 0; r < ranks; ++r) least = std::min(least, growth(r));
      EXPECT_LE(growth(rank[u]), least * (1 + 1e-5f)) << u;
      for (size_t p = 0; p < phases; ++p) load.row(rank[u])[p] += units.row(u)[p];
    }
  }
}

TEST(RankTree, GroupsHaveEveryRankOnce) {
  for (uint32_t ranks : {1u, 7u, 16u, 17u, 257u, 1000u}) {
    for (uint32_t per_node : {1u, 5u, 8u, 33u}) {
      const PhaseRanks where = MakeRanks(ranks, per_node);
      std::vector<uint32_t> all;
      for (const std::vector<uint32_t>& group : RankTree(where, 2).LeafGroups()) {
        EXPECT_LE(group.size(), RankTree::kMaxChildren);
        all.insert(all.end(), group.begin(), group.end());
      }
      std::sort(all.begin(), all.end());
      std::vector<uint32_t> expected(ranks);
      std::iota(expected.begin(), expected.end(), 0u);
      EXPECT_EQ(all, expected);
    }
  }
}

// Repairs what dealing the units out in order makes of them.
TEST(RepairBySwaps, BringsEveryPhaseNearerToItsCap) {
  Random random(17);
  for (size_t phases : {1u, 3u, 6u}) {
    for (uint32_t ranks : {2u, 9u, 100u}) {
      const PhaseRanks where = MakeRanks(ranks, 8);
      const ShareTable units = DrawUnits(random, phases, ranks, ranks * 40);
      std::vector<uint32_t> rank(units.num_rows());
      for (uint32_t u = 0; u < rank.size(); ++u) rank[u] = u % ranks;
      const ShareTable before = SumsOf(units, rank, ranks);
      const auto excess = [&](const ShareTable& loads) {
        double sum = 0;
        for (size_t r = 0; r < ranks; ++r) {
          for (size_t p = 0; p < phases; ++p) sum += std::max(0.0f, loads.row(r)[p] - 1.01f);
        }
        return sum;
      };
      const std::vector<std::vector<uint32_t>> groups = RankTree(where, phases).LeafGroups();
      RepairBySwaps({.units = units,
                     .load = before,
                     .groups = groups,
                     .cap = std::vector<float>(phases, 1.01f),
                     .passes = {{.llm_weight = 4, .far_partners = 16}}},
                    rank);
      const ShareTable after = SumsOf(units, rank, ranks);
      EXPECT_LT(excess(after), 0.8 * excess(before)) << phases << " phases, " << ranks << " ranks";
      EXPECT_LT(Fullest(after, 0), Fullest(before, 0)) << phases << " phases, " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace evenkeel::reorder
