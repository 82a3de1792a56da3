// How bins that were packed before are dealt to ranks and microbatches.
#include "reorder/microbatch/bins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>

namespace evenkeel::reorder {
namespace {

// Loads of two phases, within a tenth of each other, as packing leaves them.
std::vector<std::vector<Load>> AlikeLoads(uint32_t bins, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Load>> loads(2, std::vector<Load>(bins));
  for (std::vector<Load>& of_phase : loads) {
    for (Load& load : of_phase) load = 9000 + static_cast<Load>(random() % 1000);
  }
  return loads;
}

// Over the mean: the sum over microbatches of the heaviest rank of each, and the heaviest rank of the whole step.
std::pair<double, double> Unevenness(const DealtBins& dealt, const std::vector<Load>& load, uint32_t ranks) {
  std::vector<Load> heaviest(dealt.num_microbatches, 0), sum(ranks, 0);
  for (size_t b = 0; b < load.size(); ++b) {
    heaviest[dealt.microbatch[b]] = std::max(heaviest[dealt.microbatch[b]], load[b]);
    sum[dealt.rank[b]] += load[b];
  }
  const auto total = static_cast<double>(std::accumulate(load.begin(), load.end(), Load{0}));
  const auto waited = static_cast<double>(std::accumulate(heaviest.begin(), heaviest.end(), Load{0}));
  return {waited * ranks / total,
          static_cast<double>(*std::max_element(sum.begin(), sum.end())) * ranks / total};
}

TEST(DealBins, GivesEveryRankOneBinOfEveryMicrobatch) {
  for (uint32_t ranks : {1, 3, 8}) {
    for (uint32_t microbatches : {1, 2, 7}) {
      const auto loads = AlikeLoads(ranks * microbatches, ranks);
      for (const DealtBins& dealt : {DealBins(loads, ranks), DealBinsInOrder(ranks * microbatches, ranks)}) {
        EXPECT_EQ(dealt.num_microbatches, microbatches);
        std::set<std::pair<uint32_t, uint32_t>> places;
        for (size_t b = 0; b < loads[0].size(); ++b) {
          EXPECT_LT(dealt.rank[b], ranks);
          EXPECT_LT(dealt.microbatch[b], microbatches);
          places.emplace(dealt.rank[b], dealt.microbatch[b]);
        }
        EXPECT_EQ(places.size(), loads[0].size());
      }
    }
  }
}

TEST(DealBins, IsMoreEvenThanTheOrderOfTheBins) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto loads = AlikeLoads(128, seed);
    loads.pop_back();
    const auto [waited, sum] = Unevenness(DealBins(loads, 16), loads[0], 16);
    const auto [waited_in_order, sum_in_order] = Unevenness(DealBinsInOrder(128, 16), loads[0], 16);
    EXPECT_LT(waited - 1, 0.4 * (waited_in_order - 1)) << seed;
    EXPECT_LT(sum - 1, 0.4 * (sum_in_order - 1)) << seed;
  }
}

TEST(DealBins, CountsAllPhases) {
  // The bins differ in the second phase alone.
  const std::vector<std::vector<Load>> loads = {{10, 10, 10, 10}, {1, 9, 1, 9}};
  const DealtBins dealt = DealBins(loads, 2);
  EXPECT_EQ(dealt.microbatch[1], dealt.microbatch[3]);
  EXPECT_EQ(dealt.microbatch[0], dealt.microbatch[2]);
}

TEST(DealBins, BinsWithoutSamplesAreDealtToo) {
  const DealtBins dealt = DealBins({{0, 0, 5, 0}}, 2);
  EXPECT_EQ(dealt.num_microbatches, 2u);
  EXPECT_EQ(dealt.microbatch[2], 0u);
}

}  // namespace
}  // namespace evenkeel::reorder
