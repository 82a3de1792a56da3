// Rounds of hybrid context parallelism: small ones by hand, and what holds for all of them.
#include "advise/hybrid_groups.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace evenkeel::advise {
namespace {

// "first+degree: sequences" of every group, rounds in braces.
std::string TextOf(const std::vector<HybridRound>& rounds) {
  std::string text;
  for (const HybridRound& round : rounds) {
    absl::StrAppend(&text, "{");
    for (const HybridGroup& group : round) {
      absl::StrAppend(&text, " ", group.first_rank, "+", group.degree, ":");
      for (uint32_t sequence : group.sequences) absl::StrAppend(&text, " ", sequence);
    }
    absl::StrAppend(&text, " }");
  }
  return text;
}

TEST(HybridGroups, ADegreeIsTheSmallestPowerOfTwoThatHoldsASequence) {
  EXPECT_EQ(HybridDegree(1, 10), 1u);
  EXPECT_EQ(HybridDegree(10, 10), 1u);
  EXPECT_EQ(HybridDegree(11, 10), 2u);
  EXPECT_EQ(HybridDegree(41, 10), 8u);
  EXPECT_EQ(HybridDegree(100, 0), 0u);
}

TEST(HybridGroups, SmallRoundsAreThoseOfTheRule) {
  EXPECT_EQ(TextOf(HybridRounds(std::vector<uint32_t>{40}, 4, 10)), "{ 0+4: 0 }");
  EXPECT_EQ(TextOf(HybridRounds(std::vector<uint32_t>{10, 10, 10, 10}, 4, 10)),
            "{ 0+1: 0 1+1: 1 2+1: 2 3+1: 3 }");
  // Free ranks are used up: the only group doubles.
  EXPECT_EQ(TextOf(HybridRounds(std::vector<uint32_t>{20}, 4, 10)), "{ 0+4: 0 }");
  // The long one takes all ranks; the short ones do not fit next to it.
  EXPECT_EQ(TextOf(HybridRounds(std::vector<uint32_t>{5, 5, 40}, 2, 20)), "{ 0+2: 2 }{ 0+1: 0 1+1: 1 }");
}

TEST(HybridGroups, EverySequenceRunsOnceOnEnoughRanksOfItsOwn) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t ranks = 1u << random() % 7;
    const double tokens_per_rank = 100;
    std::vector<uint32_t> tokens(1 + random() % 60);
    for (uint32_t& n : tokens) n = 1 + static_cast<uint32_t>(random() % (random() % (100 * ranks) + 1));
    std::vector<int> ran(tokens.size());
    for (const HybridRound& round : HybridRounds(tokens, ranks, tokens_per_rank)) {
      ASSERT_FALSE(round.empty());
      uint32_t next = 0;
      for (const HybridGroup& group : round) {
        EXPECT_EQ(group.first_rank, next) << "groups lie next to one another";
        next += group.degree;
        for (uint32_t sequence : group.sequences) {
          ++ran[sequence];
          EXPECT_GE(group.degree, HybridDegree(tokens[sequence], tokens_per_rank));
        }
      }
      EXPECT_EQ(next, ranks) << "ranks that are a power of two are all used";
    }
    for (int times : ran) ASSERT_EQ(times, 1) << "trial " << trial;
  }
}

}  // namespace
}  // namespace evenkeel::advise
