// Waves of aligned groups: every sequence once, every rank in one group of the pool, and never more than a group holds.
#include "reorder/context_parallel/waves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "reorder/keyed_shuffle.h"

namespace evenkeel::reorder {
namespace {

void ExpectRules(const ContextParallelInput& input, const std::vector<Wave>& waves) {
  std::vector<int> seen(input.sequences.size(), 0);
  ASSERT_FALSE(waves.empty());
  for (const Wave& wave : waves) {
    uint32_t next = 0;
    for (const PlacedGroup& group : wave) {
      ASSERT_EQ(group.ranks.first, next) << "groups follow each other";
      next += group.ranks.size;
      ASSERT_EQ(group.ranks.first % group.ranks.size, 0u);
      ASSERT_TRUE(std::binary_search(input.degrees.begin(), input.degrees.end(), group.ranks.size));
      double tokens = 0;
      for (uint32_t s : group.sequences) ++seen[s], tokens += input.sequences[s].tokens;
      ASSERT_LE(tokens, group.ranks.size * input.memory_per_rank);
    }
    ASSERT_EQ(next, input.ranks);
  }
  ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
}

ContextParallelInput DrawInput(KeyedNumbers& numbers) {
  const auto below = [&](uint64_t n) { return numbers.Next() % n; };
  ContextParallelInput input;
  input.ranks = static_cast<uint32_t>(1 + below(24));
  input.ranks_per_node = static_cast<uint32_t>(below(9));
  const bool powers = below(2) == 0;
  const uint32_t largest = static_cast<uint32_t>(1 + below(input.ranks));
  input.degrees =
      PoolSizes(input.ranks,
                {.powers_of_two = powers, .max_size = largest, .pool = static_cast<uint32_t>(1 + below(40))});
  input.memory_per_rank = 100;
  input.memory_per_token = 1;
  const char* const algorithms[] = {"regroup", "dhp", "static", "static_power_of_two", "persistent"};
  input.algorithm = algorithms[below(5)];
  input.cost = {.attention = below(2) == 0 ? 0.0 : 0.01,
                .constant = static_cast<double>(below(3)),
                .ring = 0.1 * static_cast<double>(below(5))};
  // What powers of two alone hold, since one algorithm has no others.
  uint32_t of_powers = 1;
  for (uint32_t degree : input.degrees) of_powers = (degree & (degree - 1)) == 0 ? degree : of_powers;
  const uint64_t holds =
      100ull * (input.algorithm == "static_power_of_two" ? of_powers : input.degrees.back());
  for (uint64_t s = below(50); s > 0; --s) {
    const uint64_t tokens = below(3) == 0 ? 1 + below(holds) : 1 + below(60);
    input.sequences.push_back({static_cast<uint32_t>(tokens), 0.25 * static_cast<double>(below(4))});
  }
  return input;
}

TEST(Waves, KeepEveryRuleOnRandomProblems) {
  KeyedNumbers numbers(5);
  for (int i = 0; i < 3000; ++i) {
    const ContextParallelInput input = DrawInput(numbers);
    const auto waves = PlanWaves(input);
    ASSERT_TRUE(waves.ok()) << "problem " << i << ": " << waves.status();
    ASSERT_NO_FATAL_FAILURE(ExpectRules(input, *waves)) << "problem " << i;
    // The plan that the waves come from keeps its own rules, with the degrees of the pool.
    if (input.algorithm == kPersistent) continue;
    const auto plan = PlanContextParallel(input);
    ASSERT_TRUE(ContextParallelCheck(input, *plan).ok()) << ContextParallelCheck(input, *plan);
    const auto again = PlanWaves(input);
    ASSERT_EQ(again->size(), waves->size());
    for (size_t w = 0; w < waves->size(); ++w) {
      for (size_t g = 0; g < (*waves)[w].size(); ++g) {
        ASSERT_EQ((*again)[w][g].ranks, (*waves)[w][g].ranks);
        ASSERT_EQ((*again)[w][g].sequences, (*waves)[w][g].sequences);
      }
    }
  }
}

TEST(Waves, AnySizesAreNeverSlowerThanPowersOfTwo) {
  KeyedNumbers numbers(6);
  for (int i = 0; i < 300; ++i) {
    ContextParallelInput input = DrawInput(numbers);
    input.algorithm = "regroup";
    ContextParallelInput powers = input;
    std::erase_if(powers.degrees, [](uint32_t degree) { return (degree & (degree - 1)) != 0; });
    const auto of_powers = PlanWaves(powers);
    if (!of_powers.ok()) continue;  // a sequence needs a larger group
    EXPECT_LE(TimeOfWaves(input, *PlanWaves(input)), TimeOfWaves(input, *of_powers)) << i;
  }
}

TEST(Waves, PersistentGroupsAreTheSameInAllWaves) {
  KeyedNumbers numbers(7);
  size_t several = 0;
  for (int i = 0; i < 500; ++i) {
    ContextParallelInput input = DrawInput(numbers);
    if (input.algorithm == "static_power_of_two") continue;  // drawn for smaller groups
    input.algorithm = "persistent";
    const auto waves = PlanWaves(input);
    ASSERT_TRUE(waves.ok()) << waves.status();
    ASSERT_NO_FATAL_FAILURE(ExpectRules(input, *waves)) << i;
    several += waves->size() > 1;
    for (const Wave& wave : *waves) {
      ASSERT_EQ(wave.size(), waves->front().size());
      for (size_t g = 0; g < wave.size(); ++g) ASSERT_EQ(wave[g].ranks, waves->front()[g].ranks);
    }
  }
  EXPECT_GT(several, 50u);
}

TEST(Waves, ALongSequenceGetsAGroupAndShortOnesTheRest) {
  ContextParallelInput input{.ranks = 4, .memory_per_rank = 100, .memory_per_token = 1};
  input.cost.ring = 1;
  input.degrees = {1, 2, 4};
  input.sequences = {{.tokens = 50}, {.tokens = 190}, {.tokens = 60}};
  const auto waves = PlanWaves(input);
  ASSERT_TRUE(waves.ok()) << waves.status();
  ASSERT_EQ(waves->size(), 1u);
  const Wave& wave = waves->front();
  ASSERT_EQ(wave.size(), 3u);
  EXPECT_EQ(wave[0].ranks, (RankGroup{0, 2}));
  EXPECT_EQ(wave[0].sequences, std::vector<uint32_t>{1});
}

TEST(Waves, AMaskWithoutOrderCostsTheSequenceMore) {
  // Two sequences of one length; one costs twice the attention, and gets the larger group.
  ContextParallelInput input{.ranks = 3, .memory_per_rank = 1000, .memory_per_token = 1};
  input.cost = {.attention = 1, .linear = 0};
  input.degrees = {1, 2};
  input.sequences = {{.tokens = 100}, {.tokens = 100, .mask_factor = 1}};
  const auto waves = PlanWaves(input);
  ASSERT_TRUE(waves.ok()) << waves.status();
  ASSERT_EQ(waves->size(), 1u);
  EXPECT_EQ(waves->front()[0].ranks, (RankGroup{0, 2}));
  EXPECT_EQ(waves->front()[0].sequences, std::vector<uint32_t>{1});
}

TEST(Waves, ASequenceBeyondTheLargestGroupIsNamed) {
  ContextParallelInput input{.ranks = 8, .memory_per_rank = 100, .memory_per_token = 1};
  input.degrees = {1, 2, 4};
  input.sequences = {{.tokens = 50}, {.tokens = 401}};
  EXPECT_EQ(PlanWaves(input).status().message(),
            "context_parallel: sequence 1 has 401 tokens; 8 ranks hold 100 each, in groups of 4 ranks at "
            "most; use more "
            "ranks or memory, or leave out the sequence");
}

}  // namespace
}  // namespace evenkeel::reorder
