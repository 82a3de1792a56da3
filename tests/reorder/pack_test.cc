#include "reorder/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "reorder/keyed_shuffle.h"
#include "tests/reorder/omni_trace.h"
#include "tests/reorder/random_packing.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;

Below Numbers(uint64_t seed) {
  return [numbers = reorder::KeyedNumbers(seed)](uint64_t bound) mutable -> uint64_t {
    return bound == 0 ? 0 : numbers.Next() % bound;
  };
}

// Samples of some images of 1,024 patches, 256 tokens each, and some text.
PackInput DrawTiles(uint64_t seed, size_t samples, const std::vector<uint32_t>& tiles, double per_bin) {
  Random random(seed);
  PackInput input;
  input.phases = {{.phase = Phase::kLlm}, {.phase = Phase::kVision}};
  for (size_t s = 0; s < samples; ++s) {
    const uint32_t images = tiles[random.Below(tiles.size())];
    input.phases[0].lengths.push_back(images * 256 + random.Length(4.4, 0.5, 20, 600));
    input.phases[1].lengths.push_back(images * 1024);
  }
  for (PackPhase& phase : input.phases) {
    double total = 0;
    for (uint32_t length : phase.lengths) total += length;
    phase.capacity = static_cast<uint64_t>(per_bin * total / static_cast<double>(samples));
  }
  return input;
}

PackFigures FiguresOf(PackInput input, const std::string& algorithm) {
  input.algorithm = algorithm;
  const auto packing = Pack(input);
  EXPECT_TRUE(packing.ok()) << packing.status();
  EXPECT_TRUE(PackCheck(input, *packing).ok()) << PackCheck(input, *packing);
  return MeasurePack(input, *packing);
}

TEST(Pack, KeepsEveryInvariantOnRandomProblems) {
  int solved = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    const PackInput input = DrawPackInput(Numbers(seed));
    const auto packing = Pack(input);
    if (!packing.ok()) {
      ASSERT_EQ(packing.status().code(), absl::StatusCode::kInvalidArgument) << seed;
      continue;
    }
    ++solved;
    ASSERT_TRUE(PackCheck(input, *packing).ok()) << seed << ": " << PackCheck(input, *packing);
    ASSERT_GE(packing->num_bins, MeasurePack(input, *packing).bins_bound) << seed;
  }
  EXPECT_GT(solved, 9000);
}

TEST(Pack, NamesASampleThatNoBinHolds) {
  PackInput input;
  input.phases = {{.phase = Phase::kLlm, .lengths = {5, 6, 7}},
                  {.phase = Phase::kVision, .capacity = 4096, .lengths = {1024, 5120, 0}}};
  const auto packing = Pack(input);
  EXPECT_EQ(packing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(packing.status().message()), HasSubstr("sample 1 has 5120 in phase vision"));
}

TEST(Pack, RefusesWhatIsNoProblem) {
  PackInput input;
  EXPECT_EQ(Pack(input).status().code(), absl::StatusCode::kInvalidArgument);
  input.phases = {{.lengths = {1}}, {.lengths = {1}}};
  EXPECT_THAT(std::string(Pack(input).status().message()), HasSubstr("twice"));
  input.phases = {{.lengths = {1}}, {.phase = Phase::kAudio, .lengths = {}}};
  EXPECT_THAT(std::string(Pack(input).status().message()), HasSubstr("has 0 lengths"));
  input.phases.resize(1);
  input.algorithm = "best";
  EXPECT_THAT(std::string(Pack(input).status().message()), HasSubstr("even_fill, omnibal"));
}

TEST(Pack, IsTheSameForTheSameSeedAndOrdersBinsByIt) {
  PackInput input = DrawTiles(1, 2000, {1, 3, 4, 5}, 9);
  const Packing first = *Pack(input), again = *Pack(input);
  EXPECT_EQ(first.bin, again.bin);
  input.seed = 1;
  const Packing other = *Pack(input);
  EXPECT_NE(first.bin, other.bin);
  // The same bins in another order: what shared a bin still does.
  std::map<uint32_t, uint32_t> renamed;
  for (size_t s = 0; s < first.bin.size(); ++s) {
    EXPECT_EQ(renamed.try_emplace(first.bin[s], other.bin[s]).first->second, other.bin[s]);
  }
}

TEST(Pack, TakesCapacitiesFromTheDataAsThePaperDoes) {
  PackInput input;
  input.phases = {{.phase = Phase::kLlm, .lengths = {4000, 1000, 1000}},
                  {.phase = Phase::kVision, .lengths = {4, 5, 6}}};
  // 400 tokens per image: ten images in 4,000 tokens.
  EXPECT_EQ(Pack(input)->capacities, (std::vector<uint64_t>{4000, 10}));
  input.phases[1].lengths = {0, 0, 12};  // one sample alone has more
  EXPECT_EQ(Pack(input)->capacities[1], 12u);
}

TEST(Pack, MeasuresTheRatiosOfThePaper) {
  PackInput input{.devices = 2};
  input.phases = {{.phase = Phase::kLlm, .capacity = 10, .lengths = {4, 2, 8, 10}}};
  const Packing packing{.num_bins = 3, .bin = {0, 0, 1, 2}, .capacities = {10}};
  ASSERT_TRUE(PackCheck(input, packing).ok());
  const PackFigures figures = MeasurePack(input, packing);
  // One full step of 6 and 8: (8 - 6) / (8 * 2). Bins padded to their longest: 2 of 8, nothing, nothing.
  EXPECT_DOUBLE_EQ(figures.phases[0].distribution_ratio, 0.125);
  EXPECT_DOUBLE_EQ(figures.pad_ratio, 0.25 / 3);
  EXPECT_DOUBLE_EQ(figures.fill, 24.0 / 30);
  EXPECT_EQ(figures.bins_bound, 3u);
}

TEST(PackCheck, FindsWhatIsWrong) {
  PackInput input;
  input.phases = {{.phase = Phase::kLlm, .capacity = 10, .lengths = {4, 7}}};
  EXPECT_TRUE(PackCheck(input, {.num_bins = 2, .bin = {0, 1}, .capacities = {10}}).ok());
  EXPECT_FALSE(PackCheck(input, {.num_bins = 1, .bin = {0, 0}, .capacities = {10}}).ok());
  EXPECT_FALSE(PackCheck(input, {.num_bins = 3, .bin = {0, 1}, .capacities = {10}}).ok());
  EXPECT_FALSE(PackCheck(input, {.num_bins = 2, .bin = {0, 2}, .capacities = {10}}).ok());
  EXPECT_FALSE(PackCheck(input, {.num_bins = 2, .bin = {0}, .capacities = {10}}).ok());
  EXPECT_FALSE(PackCheck(input, {.num_bins = 2, .bin = {0, 1}, .capacities = {11}}).ok());
}

TEST(EvenFill, MakesEveryStepEvenAndEveryBinFull) {
  for (const std::vector<uint32_t>& tiles : {std::vector<uint32_t>{1, 3, 4, 5}, {3, 5}, {1, 1, 2, 7, 13}}) {
    const PackFigures figures = FiguresOf(DrawTiles(7, 30000, tiles, 9), "even_fill");
    EXPECT_LE(figures.phases[1].distribution_ratio, 0.02);
    EXPECT_LE(figures.phases[0].distribution_ratio, 0.05);
    EXPECT_GE(figures.fill, 0.97);
  }
}

TEST(EvenFill, IsNoWorseThanOmnibalAtThePapersCapacities) {
  for (const std::vector<uint32_t>& tiles : {std::vector<uint32_t>{1, 3, 4, 5}, {3, 5}, {1, 2, 2, 12}}) {
    PackInput input = DrawTiles(3, 20000, tiles, 9);
    for (PackPhase& phase : input.phases) phase.capacity = 0;
    const PackFigures ours = FiguresOf(input, "even_fill"), theirs = FiguresOf(input, "omnibal");
    EXPECT_GE(ours.fill, theirs.fill);
    for (int p : {0, 1}) EXPECT_LE(ours.phases[p].distribution_ratio, theirs.phases[p].distribution_ratio);
  }
}

TEST(EvenFill, IsAsEvenAsGiantSamplesAllow) {
  PackInput input;
  for (Phase phase : kAllPhases) input.phases.push_back({.phase = phase});
  for (const SampleLengths& sample : DrawOmniTrace(5, 20000)) {
    input.phases[0].lengths.push_back(sample.llm_length);
    for (size_t p : {1, 2}) input.phases[p].lengths.push_back(0);
    for (const SampleItem& item : sample.items) {
      input.phases[static_cast<size_t>(PhaseOf(item.medium))].lengths.back() += item.lengths.cost_length;
    }
  }
  for (size_t p : {0, 1, 2}) {
    double total = 0;
    for (uint32_t length : input.phases[p].lengths) total += length;
    input.phases[p].capacity =
        std::max<uint64_t>(*std::max_element(input.phases[p].lengths.begin(), input.phases[p].lengths.end()),
                           static_cast<uint64_t>(20 * total / 20000));
  }
  const PackFigures figures = FiguresOf(input, "even_fill");
  EXPECT_GE(figures.fill, 0.97);
  EXPECT_LE(figures.phases[1].distribution_ratio, figures.phases[1].distribution_ratio_floor + 0.02);
  EXPECT_LE(figures.phases[0].distribution_ratio, figures.phases[0].distribution_ratio_floor + 0.05);
}

TEST(BestFitDecreasing, PacksPairsAsTightAsCanBe) {
  // Every sample has one partner with which it fills a bin exactly.
  PackInput input{.algorithm = "best_fit_decreasing"};
  input.phases = {{.phase = Phase::kLlm, .capacity = 1000}};
  for (uint32_t i = 1; i < 400; ++i) {
    input.phases[0].lengths.push_back(500 + i);
    input.phases[0].lengths.push_back(500 - i);
  }
  EXPECT_EQ(Pack(input)->num_bins, 399u);
}

TEST(Omnibal, KeepsGroupsThatReachATargetAndDropsNothing) {
  const PackFigures once = [] {
    PackInput input = DrawTiles(9, 20000, {1, 3, 4, 5}, 9);
    input.iterations = 1;
    return FiguresOf(input, "omnibal");
  }();
  const PackFigures ten = FiguresOf(DrawTiles(9, 20000, {1, 3, 4, 5}, 9), "omnibal");
  EXPECT_GT(ten.fill, once.fill);
  EXPECT_LT(ten.phases[1].distribution_ratio, once.phases[1].distribution_ratio);
}

}  // namespace
}  // namespace evenkeel
