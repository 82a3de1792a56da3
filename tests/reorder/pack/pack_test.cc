#include "reorder/pack/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/reorder/omni_trace.h"
#include "tests/reorder/pack/random_packing.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {
namespace {

using ::testing::HasSubstr;

// Of the random problems with sanitizers, which take eight times as long for each.
#ifdef EVENKEEL_SANITIZED
constexpr int kOneIn = 8;
#else
constexpr int kOneIn = 1;
#endif

// Samples of some images of 1,024 patches, 256 tokens each, and some text.
PackInput DrawTiles(uint64_t seed, size_t samples, const std::vector<uint32_t>& tiles, double per_bin) {
  Random random(seed);
  PackInput input;
  input.phases = {{.phase = Phase::kLlm}, {.phase = kVisionPhase}};
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

// How many of the problems that `draw` makes from the first `seeds` seeds are solved; checks every solution.
template <typename Draw>
int SolvedOf(uint64_t seeds, Draw draw) {
  int solved = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const PackInput input = draw(seed);
    const auto packing = Pack(input);
    if (!packing.ok()) {
      EXPECT_EQ(packing.status().code(), absl::StatusCode::kInvalidArgument) << seed;
      continue;
    }
    ++solved;
    EXPECT_TRUE(PackCheck(input, *packing).ok()) << seed << ": " << PackCheck(input, *packing);
    EXPECT_GE(packing->num_bins, MeasurePack(input, *packing).bins_bound) << seed;
  }
  return solved;
}

TEST(Pack, KeepsEveryInvariantOnRandomProblems) {
  EXPECT_GT(SolvedOf(10000 / kOneIn, [](uint64_t seed) { return DrawPackInput(BelowFrom(seed)); }),
            9000 / kOneIn);
}

TEST(Pack, MakesAMultipleOfBinsWhereThereAreAsManySamples) {
  int larger = 0;
  for (uint64_t seed = 0; seed < 3000 / kOneIn; ++seed) {
    PackInput input = DrawPackInput(BelowFrom(seed));
    const auto any = Pack(input);
    if (!any.ok() || any->num_bins == 0) continue;
    input.multiple = 1 + static_cast<uint32_t>(seed % 7);
    const auto packing = Pack(input);
    ASSERT_TRUE(packing.ok()) << seed << packing.status();
    EXPECT_TRUE(PackCheck(input, *packing).ok()) << seed << ": " << PackCheck(input, *packing);
    const size_t samples = packing->bin.size();
    EXPECT_TRUE(packing->num_bins % input.multiple == 0 || packing->num_bins == samples) << seed;
    EXPECT_LT(packing->num_bins, any->num_bins + input.multiple) << seed;
    larger += packing->num_bins > any->num_bins;
  }
  EXPECT_GT(larger, 1000 / kOneIn);
}

// The llm and five encoders.
const std::vector<Phase> kManyPhases = {Phase::kLlm,       Phase("vision", 1), Phase("audio", 2),
                                        Phase("depth", 3), Phase("tower", 4),  Phase("point-cloud", 5)};

TEST(Pack, KeepsEveryInvariantWithFiveEncoders) {
  EXPECT_GT(
      SolvedOf(2000 / kOneIn, [](uint64_t seed) { return DrawPackInput(BelowFrom(seed), kManyPhases); }),
      1500 / kOneIn);
}

// Items of one to three of five encoders, and their rows and some text in the llm.
PackInput DrawManyPhases(uint64_t seed, size_t samples, double per_bin) {
  Random random(seed);
  PackInput input;
  for (const Phase& phase : kManyPhases) {
    input.phases.push_back({.phase = phase, .lengths = std::vector<uint32_t>(samples)});
  }
  for (size_t s = 0; s < samples; ++s) {
    uint32_t rows = 0;
    for (uint64_t i = 1 + random.Below(3); i > 0; --i) {
      const uint32_t length = random.Length(6, 0.6, 40, 4000);
      input.phases[1 + random.Below(5)].lengths[s] += length;
      rows += length / 4;
    }
    input.phases[0].lengths[s] = rows + random.Length(4.4, 0.5, 20, 600);
  }
  for (PackPhase& phase : input.phases) {
    double total = 0;
    for (uint32_t length : phase.lengths) total += length;
    const uint32_t longest = *std::max_element(phase.lengths.begin(), phase.lengths.end());
    phase.capacity =
        std::max<uint64_t>(longest, static_cast<uint64_t>(per_bin * total / static_cast<double>(samples)));
  }
  return input;
}

TEST(Pack, EvensOutAllOfFiveEncoders) {
  const PackInput input = DrawManyPhases(3, 20000, 40);
  const PackFigures ours = FiguresOf(input, "even_fill"), theirs = FiguresOf(input, "omnibal");
  EXPECT_GT(ours.fill, theirs.fill);
  for (size_t p = 0; p < ours.phases.size(); ++p) {
    EXPECT_EQ(ours.phases[p].phase, kManyPhases[p]);
    EXPECT_LT(ours.phases[p].distribution_ratio, 0.5 * theirs.phases[p].distribution_ratio) << p;
  }
}

TEST(Pack, NamesASampleThatNoBinHolds) {
  PackInput input;
  input.phases = {{.phase = Phase::kLlm, .lengths = {5, 6, 7}},
                  {.phase = kVisionPhase, .capacity = 4096, .lengths = {1024, 5120, 0}}};
  const auto packing = Pack(input);
  EXPECT_EQ(packing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(packing.status().message()), HasSubstr("sample 1 has 5120 in phase vision"));
}

TEST(Pack, RefusesWhatIsNoProblem) {
  PackInput input;
  EXPECT_EQ(Pack(input).status().code(), absl::StatusCode::kInvalidArgument);
  input.phases = {{.lengths = {1}}, {.lengths = {1}}};
  EXPECT_THAT(std::string(Pack(input).status().message()), HasSubstr("twice"));
  input.phases = {{.lengths = {1}}, {.phase = kAudioPhase, .lengths = {}}};
  EXPECT_THAT(std::string(Pack(input).status().message()), HasSubstr("has 0 lengths"));
  input.phases = {{.phase = Phase("depth", 3), .lengths = {1}}, {.phase = Phase("tower", 3), .lengths = {1}}};
  EXPECT_THAT(std::string(Pack(input).status().message()), HasSubstr("depth and tower both have number 3"));
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
                  {.phase = kVisionPhase, .lengths = {4, 5, 6}}};
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

// Of samples from `next` on, the fewest bins, when those of `load` are there already.
size_t ExhaustiveBins(const std::vector<uint32_t>& lengths, uint32_t capacity, size_t next,
                      std::vector<uint32_t>& load) {
  if (next == lengths.size()) return load.size();
  load.push_back(lengths[next]);
  size_t fewest = ExhaustiveBins(lengths, capacity, next + 1, load);
  load.pop_back();
  for (uint32_t& bin : load) {
    if (bin + lengths[next] > capacity) continue;
    bin += lengths[next];
    fewest = std::min(fewest, ExhaustiveBins(lengths, capacity, next + 1, load));
    bin -= lengths[next];
  }
  return fewest;
}

TEST(Pack, NoRatioIsBelowItsFloor) {
  for (uint64_t seed = 0; seed < 1500 / kOneIn; ++seed) {
    const PackInput input = DrawPackInput(BelowFrom(seed));
    const auto packing = Pack(input);
    if (!packing.ok()) continue;
    for (const PackedPhase& phase : MeasurePack(input, *packing).phases) {
      ASSERT_LE(phase.distribution_ratio_floor, phase.distribution_ratio + 1e-12) << seed;
      ASSERT_GE(phase.distribution_ratio_floor, 0) << seed;
    }
  }
}

// Of samples from `next` on, the least largest load of the bins.
uint64_t ExhaustiveFullest(const std::vector<uint32_t>& lengths, size_t next, std::vector<uint64_t>& load) {
  if (next == lengths.size()) return *std::max_element(load.begin(), load.end());
  uint64_t least = ~uint64_t{0};
  for (uint64_t& bin : load) {
    bin += lengths[next];
    least = std::min(least, ExhaustiveFullest(lengths, next + 1, load));
    bin -= lengths[next];
  }
  return least;
}

TEST(Pack, FloorsOfAStepAreNoMoreThanItsOptimum) {
  int at_optimum = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const uint32_t bins = 2 + static_cast<uint32_t>(random.Below(2));
    PackInput input{.devices = bins};
    input.phases = {{.phase = kVisionPhase, .capacity = 100 * 1024}};
    for (size_t s = 0; s < bins + random.Below(6); ++s) {
      input.phases[0].lengths.push_back(1024 *
                                        static_cast<uint32_t>(1 + random.Below(2) * 4 + random.Below(2)));
    }
    Packing packing{.num_bins = bins, .capacities = {100 * 1024}};
    for (size_t s = 0; s < input.phases[0].lengths.size(); ++s) {
      packing.bin.push_back(static_cast<uint32_t>(s % bins));
    }
    std::vector<uint64_t> load(bins, 0);
    const double fullest = static_cast<double>(ExhaustiveFullest(input.phases[0].lengths, 0, load));
    double sum = 0;
    for (uint32_t length : input.phases[0].lengths) sum += length;
    const double optimum = 1 - sum / (fullest * bins);
    const double floor = MeasurePack(input, packing).phases[0].distribution_ratio_floor;
    ASSERT_LE(floor, optimum + 1e-12) << seed;
    at_optimum += floor > optimum - 1e-12;
  }
  EXPECT_GT(at_optimum, 240);
}

// Nineteen in twenty have five tiles, the others three: eight fives and a three are 43, and threes are few.
TEST(Pack, ProvesWhatCoarseLengthsKeepUneven) {
  PackInput input{.devices = 16};
  input.phases = {{.phase = kVisionPhase, .capacity = 44 * 1024}};
  for (uint32_t s = 0; s < 16000; ++s) input.phases[0].lengths.push_back((s % 20 == 0 ? 3 : 5) * 1024);
  const PackFigures figures = FiguresOf(input, "even_fill");
  EXPECT_GT(figures.phases[0].distribution_ratio, 0.02) << "more than is asked, and";
  EXPECT_GT(figures.phases[0].distribution_ratio_floor, 0.9 * figures.phases[0].distribution_ratio)
      << "no more is to be had";
}

TEST(Pack, BoundsBinsByNoMoreThanTheOptimum) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    PackInput input;
    const uint32_t unit = 1 + static_cast<uint32_t>(random.Below(3)) * 500;
    input.phases = {{.phase = Phase::kLlm, .capacity = unit * (6 + random.Below(8)) + random.Below(unit)}};
    for (size_t s = 0; s < 1 + random.Below(8); ++s) {
      input.phases[0].lengths.push_back(unit * static_cast<uint32_t>(1 + random.Below(6)));
    }
    std::vector<uint32_t> load;
    const size_t fewest =
        ExhaustiveBins(input.phases[0].lengths, static_cast<uint32_t>(input.phases[0].capacity), 0, load);
    const Packing packing = *Pack(input);
    EXPECT_LE(MeasurePack(input, packing).bins_bound, fewest) << seed;
    EXPECT_GE(packing.num_bins, fewest) << seed;
  }
}

TEST(Pack, ProvesWhatCoarseLengthsCannotFill) {
  // Eight of five units in 42: a bin and a twentieth of its room stays empty, whatever is done.
  PackInput input;
  input.phases = {{.phase = kVisionPhase, .capacity = 42 * 1024 + 700}};
  input.phases[0].lengths.assign(8000, 5 * 1024);
  input.phases[0].lengths.push_back(1024);
  const Packing packing = *Pack(input);
  EXPECT_EQ(MeasurePack(input, packing).bins_bound, 1000u);
  EXPECT_EQ(packing.num_bins, 1000u);
}

// Of either phase alone, the short ones go in pairs.
TEST(Pack, ProvesWhatTwoPhasesTogetherCannotFill) {
  PackInput input;
  input.phases = {{.phase = Phase::kLlm, .capacity = 100}, {.phase = kVisionPhase, .capacity = 100}};
  for (uint32_t s = 0; s < 1200; ++s) {
    input.phases[0].lengths.push_back(s % 2 == 0 ? 70 : 35);
    input.phases[1].lengths.push_back(s % 2 == 0 ? 35 : 70);
  }
  EXPECT_EQ(FiguresOf(input, "even_fill").bins_bound, 1200u);
  input.phases.pop_back();
  EXPECT_EQ(FiguresOf(input, "even_fill").bins_bound, 900u);
}

TEST(Pack, OrdersTheSameBinsAlikeWhateverMadeThem) {
  PackInput input;
  input.phases = {{.phase = Phase::kLlm, .capacity = 100}};
  for (uint32_t s = 0; s < 500; ++s) input.phases[0].lengths.push_back(51 + s % 49);
  const std::vector<uint32_t> ours = Pack(input)->bin;  // no two samples fit in one
  for (const char* algorithm : {"omnibal", "best_fit_decreasing"}) {
    input.algorithm = algorithm;
    EXPECT_EQ(Pack(input)->bin, ours) << algorithm;
  }
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

// Mostly five tiles, a few of one and three: no bin of 42 can be filled by fives.
TEST(EvenFill, TakesNoMoreBinsThanCoarseLengthsAsk) {
  std::vector<uint32_t> tiles(30, 5);
  tiles.insert(tiles.end(), {1, 3, 3});
  const PackInput input = DrawTiles(8, 30000, tiles, 9);
  const PackFigures figures = FiguresOf(input, "even_fill");
  const double bins = 30000 / figures.samples_per_bin;
  EXPECT_LE(bins, 1.002 * static_cast<double>(figures.bins_bound));
  EXPECT_LT(figures.fill, 0.97);
  EXPECT_LE(figures.phases[0].distribution_ratio, 0.05);
}

TEST(EvenFill, IsNoWorseThanOmnibalInAnyFigureOfSmallProblems) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 2000 / kOneIn; ++seed) {
    PackInput input = DrawPackInput(BelowFrom(seed));
    input.algorithm = "omnibal";
    const auto packed = Pack(input);
    if (!packed.ok() || packed->num_bins < input.devices) continue;
    const PackFigures theirs = MeasurePack(input, *packed), ours = FiguresOf(input, "even_fill");
    // With fewer bins than devices there is no full step to compare.
    if (static_cast<double>(packed->bin.size()) / ours.samples_per_bin < input.devices) continue;
    ++compared;
    EXPECT_GE(ours.fill, theirs.fill - 1e-12) << seed;
    for (size_t p = 0; p < ours.phases.size(); ++p) {
      EXPECT_LE(ours.phases[p].distribution_ratio, theirs.phases[p].distribution_ratio + 1e-12) << seed;
    }
  }
  EXPECT_GT(compared, 1000 / kOneIn);
}

// One phase, of lengths of five kinds.
PackInput DrawTextAlone(uint64_t seed) {
  Random random(seed);
  PackInput input{.devices = static_cast<uint32_t>(1 + random.Below(64))};
  PackPhase& llm = input.phases.emplace_back();
  llm.capacity = 4096;
  for (uint64_t s = 200 + random.Below(4000); s > 0; --s) {
    uint64_t length = 1 + random.Below(4096);
    if (seed % 5 == 1) length = 1 + random.Below(1 + random.Below(4096));              // many short ones
    if (seed % 5 == 2) length = 1 + random.Below(random.Below(50) == 0 ? 4096 : 300);  // few long ones
    if (seed % 5 == 3) length = 256 * (1 + random.Below(12));                          // tiles
    if (seed % 5 == 4) length = 500 + random.Below(1500);
    llm.lengths.push_back(static_cast<uint32_t>(length));
  }
  return input;
}

TEST(EvenFill, IsNoWorseThanBestFitForTextAlone) {
  for (uint64_t seed = 0; seed < 200 / kOneIn; ++seed) {
    PackInput input = DrawTextAlone(seed);
    const auto ours = Pack(input);
    input.algorithm = "best_fit_decreasing";
    const auto fitted = Pack(input);
    ASSERT_TRUE(ours.ok() && fitted.ok()) << ours.status() << fitted.status();
    ASSERT_TRUE(PackCheck(input, *ours).ok());
    if (fitted->num_bins < input.devices) continue;  // no full step
    const PackFigures mine = MeasurePack(input, *ours), theirs = MeasurePack(input, *fitted);
    ASSERT_GE(mine.fill, theirs.fill) << seed;
    ASSERT_LE(mine.phases[0].distribution_ratio, theirs.phases[0].distribution_ratio + 1e-12) << seed;
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

// Every sample takes a ninth of a bin in both phases together, so that a bin of nine is at both capacities.
TEST(EvenFill, FillsBinsWhosePhasesGoAgainstEachOther) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Random random(seed);
    PackInput input;
    input.phases = {{.phase = Phase::kLlm}, {.phase = kVisionPhase}};
    for (int s = 0; s < 40000; ++s) {
      const double images = random.Uniform();
      input.phases[0].lengths.push_back(static_cast<uint32_t>(3000 - 1400 * images) +
                                        random.Length(3.4, 0.5, 1, 600));
      input.phases[1].lengths.push_back(static_cast<uint32_t>(200 + 6000 * images));
    }
    for (PackPhase& phase : input.phases) {
      double total = 0;
      for (uint32_t length : phase.lengths) total += length;
      phase.capacity = static_cast<uint64_t>(9 * total / 40000);
    }
    const PackFigures figures = FiguresOf(input, "even_fill");
    EXPECT_GE(figures.fill, 0.97) << seed;
    EXPECT_LE(figures.phases[1].distribution_ratio, 0.03) << seed;
    EXPECT_LE(figures.phases[0].distribution_ratio, 0.03) << seed;
  }
}

TEST(EvenFill, IsAsEvenAsGiantSamplesAllow) {
  PackInput input;
  for (Phase phase : kUsualPhases) input.phases.push_back({.phase = phase});
  for (const SampleLengths& sample : DrawOmniTrace(5, 20000)) {
    input.phases[0].lengths.push_back(sample.llm_length);
    for (size_t p : {1, 2}) input.phases[p].lengths.push_back(0);
    for (const SampleItem& item : sample.items) {
      input.phases[UsualPhaseOf(item.medium).number()].lengths.back() += item.lengths.cost_length;
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
  EXPECT_LE(figures.phases[0].distribution_ratio, 0.05);
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
}  // namespace evenkeel::reorder
