// Units by rank, against a plain search.
#include "reorder/by_rank.h"

#include <gtest/gtest.h>

namespace evenkeel::reorder {
namespace {

TEST(UnitsByRank, ListsTheUnitsOfEveryRankInOrder) {
  for (uint32_t num_ranks : {1u, 3u, 1000u}) {
    std::vector<uint32_t> rank(500);
    for (uint32_t i = 0; i < rank.size(); ++i) rank[i] = i * i * 7 % num_ranks;
    const std::vector<std::vector<uint32_t>> units = UnitsByRank(rank, num_ranks);
    ASSERT_EQ(units.size(), num_ranks);
    for (uint32_t r = 0; r < num_ranks; ++r) {
      std::vector<uint32_t> expected;
      for (uint32_t i = 0; i < rank.size(); ++i) {
        if (rank[i] == r) expected.push_back(i);
      }
      EXPECT_EQ(units[r], expected);
    }
  }
}

}  // namespace
}  // namespace evenkeel::reorder
