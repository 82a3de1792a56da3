#include "reorder/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reorder/swaps.h"
#include "tests/reorder/make_ranks.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {
namespace {

// Units of which some have much in one phase, largest first; 1 is the mean of a rank.
std::vector<Unit> DrawUnits(Random& random, uint32_t ranks, uint32_t count) {
  std::vector<Unit> units(count);
  for (uint32_t u = 0; u < count; ++u) {
    units[u].index = u;
    for (float& share : units[u].share) {
      share = static_cast<float>(ranks) / static_cast<float>(count) *
              static_cast<float>(random.Below(random.Below(3) == 0 ? 4000 : 500)) / 1024;
    }
  }
  std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) {
    return *std::max_element(a.share.begin(), a.share.end()) >
           *std::max_element(b.share.begin(), b.share.end());
  });
  return units;
}

struct Placed {
  std::vector<uint32_t> placed, repaired;  // by rank
  bool operator==(const Placed&) const = default;
};

// Places the units, and repairs what dealing them out in order would make of them.
Placed PlaceAndRepair(const PhaseRanks& where, const std::vector<Unit>& units, Width width) {
  FamilyTree tree(where);
  Placed result{.placed = std::vector<uint32_t>(units.size())};
  tree.Place(units, result.placed, width);
  std::vector<Shares> load(where.size(), Shares{});
  for (uint32_t u = 0; u < units.size(); ++u) {
    result.repaired.push_back(u % where.size());
    for (int p = 0; p < kNumPhases; ++p) load[u % where.size()][p] += units[u].share[p];
  }
  Workspace memory(0);
  RepairBySwaps({.units = units,
                 .load = load,
                 .families = &tree.leaves(),
                 .cap = {1.01f, 1.01f, 1.01f},
                 .passes = {{.weight = {4, 1, 1}, .far_partners = 16}}},
                result.repaired, memory, width);
  return result;
}

TEST(FamilyTree, PlacesTheSameWithAnyNumberOfLanes) {
  if (Widest() == Width::kFour) GTEST_SKIP() << "this process has one width only";
  Random random(17);
  uint32_t repaired = 0;
  for (uint32_t ranks : {1u, 2u, 7u, 8u, 9u, 16u, 17u, 100u, 128u, 257u, 1000u}) {
    for (uint32_t per_node : {1u, 5u, 8u, 33u}) {
      const PhaseRanks where = MakeRanks(ranks, per_node);
      const std::vector<Unit> units =
          DrawUnits(random, ranks, ranks * (4 + static_cast<uint32_t>(random.Below(40))));
      const Placed placed = PlaceAndRepair(where, units, Width::kFour);
      for (Width width : {Width::kEight, Width::kSixteen}) {
        if (Widest(width) != width) continue;
        EXPECT_EQ(placed, PlaceAndRepair(where, units, width)) << ranks << " ranks, " << per_node;
      }
      for (uint32_t u = 0; u < units.size(); ++u) repaired += placed.repaired[u] != u % ranks;
    }
  }
  EXPECT_GT(repaired, 1000u);
}

TEST(FamilyTree, LoadsAreTheSumsOfWhatWasPlaced) {
  Random random(18);
  const PhaseRanks where = MakeRanks(100, 8);
  const std::vector<Unit> units = DrawUnits(random, 100, 3000);
  FamilyTree tree(where);
  std::vector<uint32_t> rank(units.size());
  tree.Place(units, rank);
  std::vector<Shares> expected(100, Shares{});
  for (size_t u = 0; u < units.size(); ++u) {
    for (int p = 0; p < kNumPhases; ++p) expected[rank[u]][p] += units[u].share[p];
  }
  EXPECT_EQ(tree.Loads(100), expected);
}

}  // namespace
}  // namespace evenkeel::reorder
