// The pool of aligned groups that a job allows.
#include "core/context_groups.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;

TEST(ContextGroups, LargestPowersOfTwoComeFirst) {
  const GroupSpec spec{.powers_of_two = true, .max_size = 256, .pool = 64};
  EXPECT_THAT(PoolSizes(256, spec), ElementsAre(1, 8, 16, 32, 64, 128, 256));
  EXPECT_EQ(PoolOf(256, PoolSizes(256, spec)).size(), 63u);
  EXPECT_THAT(PoolSizes(16, {.powers_of_two = true, .max_size = 8, .pool = 64}), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(PoolSizes(4, {.max_size = 1, .pool = 64}), ElementsAre(1));
}

TEST(ContextGroups, AnySizesFillWhatPowersOfTwoLeave) {
  EXPECT_THAT(PoolSizes(8, {.max_size = 8, .pool = 64}), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(PoolSizes(8, {.max_size = 6, .pool = 9}), ElementsAre(1, 2, 3, 4, 6));
  EXPECT_THAT(PoolSizes(8, {.max_size = 7, .pool = 3}), ElementsAre(1, 4, 7));
}

TEST(ContextGroups, ThePoolHoldsAlignedGroupsWithinItsLimit) {
  for (uint32_t ranks = 1; ranks <= 40; ++ranks) {
    for (uint32_t pool : {1u, 5u, 64u}) {
      for (uint32_t largest = 1; largest <= ranks; ++largest) {
        for (bool powers : {false, true}) {
          const std::vector<uint32_t> sizes =
              PoolSizes(ranks, {.powers_of_two = powers, .max_size = largest, .pool = pool});
          ASSERT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
          ASSERT_EQ(sizes.front(), 1u);
          ASSERT_LE(sizes.back(), largest);
          const std::vector<RankGroup> groups = PoolOf(ranks, sizes);
          ASSERT_LE(groups.size(), pool);
          for (const RankGroup& group : groups) {
            ASSERT_EQ(group.first % group.size, 0u);
            ASSERT_LE(group.first + group.size, ranks);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel
