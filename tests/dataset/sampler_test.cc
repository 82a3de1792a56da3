#include "dataset/order/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "dataset/order/epoch_order.h"
#include "dataset/order/mixture.h"
#include "dataset/order/permutation.h"
#include "dataset/order/step_table.h"
#include "dataset/order/token_windows.h"
#include "dataset/source/little_endian.h"
#include "dataset/source/paged_file.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

TEST(Permutation, IsOneOfEverySizeAndInverts) {
  for (uint64_t n : {1, 2, 3, 4, 5, 7, 8, 16, 31, 100, 1000, 1024, 4097}) {
    for (uint64_t key = 0; key < 5; ++key) {
      Permutation permutation(key, n);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        uint64_t value = permutation.At(i);
        ASSERT_LT(value, n);
        EXPECT_FALSE(seen[value]);
        seen[value] = true;
        EXPECT_EQ(permutation.PositionOf(value), i);
      }
    }
  }
  Permutation large(3, (1ull << 62) - 57);
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(large.PositionOf(large.At(i << 50)), i << 50);
}

// Every value should be in every position equally often. 99.99 % bounds of a binomial count, roughly 4 sigma.
TEST(Permutation, IsFairOverKeys) {
  for (uint64_t n : {2, 3, 5, 8, 13}) {
    constexpr int kKeys = 20000;
    std::vector<int> counts(n * n);
    for (uint64_t key = 0; key < kKeys; ++key) {
      Permutation permutation(MixKey({key, 99}), n);
      for (uint64_t i = 0; i < n; ++i) ++counts[i * n + permutation.At(i)];
    }
    double p = 1.0 / static_cast<double>(n), mean = kKeys * p, sigma = std::sqrt(kKeys * p * (1 - p));
    for (int count : counts) EXPECT_NEAR(count, mean, 5 * sigma) << n;
  }
}

// Neighbours must not stay neighbours: the share of pairs that land close together is that of a random order.
TEST(Permutation, ParsesNoOrderThrough) {
  Permutation permutation(42, 100000);
  int close = 0, ascending = 0;
  for (uint64_t i = 0; i + 1 < 100000; ++i) {
    int64_t a = static_cast<int64_t>(permutation.At(i)), b = static_cast<int64_t>(permutation.At(i + 1));
    close += std::abs(a - b) < 1000;
    ascending += a < b;
  }
  EXPECT_NEAR(close, 1990, 250);
  EXPECT_NEAR(ascending, 50000, 800);
}

// Values that streams depend on: a change here is a new stream_version. order_golden.py computes them another
// way.
TEST(Permutation, HasTheGoldenValuesOfThisStreamVersion) {
  auto first = [](const Permutation& permutation) {
    std::vector<uint64_t> out;
    for (uint64_t i = 0; i < 8; ++i) out.push_back(permutation.At(i));
    return out;
  };
  EXPECT_EQ(kStreamVersion, 4u);
  EXPECT_EQ(MixKey({1, 2, 3}), 5246500226706903259u);
  EXPECT_EQ(first(Permutation(7, 10)), (std::vector<uint64_t>{2, 8, 1, 0, 6, 5, 9, 7}));
  EXPECT_EQ(first(Permutation(7, 100000000)), (std::vector<uint64_t>{27389863, 2791244, 2835876, 71799965,
                                                                     78583520, 80625723, 91547444, 2101528}));
  OrderSpec blocked{Shuffle::kBlocked, 4, 3};
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < 50; ++i) order.push_back(EpochOrder(blocked, 7, 1, 2, 50).At(i));
  EXPECT_EQ(order, (std::vector<uint64_t>{6,  4,  37, 7,  38, 48, 36, 5,  39, 49, 10, 20, 22, 21, 23, 8,  29,
                                          28, 9,  30, 31, 11, 41, 40, 42, 19, 13, 12, 17, 16, 14, 15, 43, 18,
                                          45, 25, 26, 46, 32, 33, 35, 44, 34, 27, 24, 47, 2,  1,  3,  0}));
}

std::vector<uint64_t> Epoch(const OrderSpec& order, uint64_t epoch, uint64_t n, uint64_t seed = 1) {
  std::vector<uint64_t> out;
  EpochOrder rows(order, seed, 0, epoch, n);
  for (uint64_t i = 0; i < n; ++i) out.push_back(rows.At(i));
  return out;
}

bool EachOnce(std::vector<uint64_t> rows) {
  std::sort(rows.begin(), rows.end());
  for (uint64_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != i) return false;
  }
  return true;
}

TEST(EpochOrder, DeliversEverySampleOnceForEveryShape) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    OrderSpec order{static_cast<Shuffle>(random() % 3), 1 + random() % 40, 1 + random() % 12};
    uint64_t n = 1 + random() % 300;
    EXPECT_TRUE(EachOnce(Epoch(order, random() % 5, n, random())))
        << static_cast<int>(order.shuffle) << " n " << n << " block " << order.block_samples << " window "
        << order.window_blocks;
  }
}

TEST(EpochOrder, DiffersBetweenEpochsSeedsAndDatasets) {
  for (Shuffle shuffle : {Shuffle::kFull, Shuffle::kBlocked}) {
    OrderSpec order{shuffle, 8, 4};
    EXPECT_NE(Epoch(order, 0, 200), Epoch(order, 1, 200));
    EXPECT_NE(Epoch(order, 0, 200, 1), Epoch(order, 0, 200, 2));
    EXPECT_NE(EpochOrder(order, 1, 0, 0, 1u << 20).At(5), EpochOrder(order, 1, 1, 0, 1u << 20).At(5));
  }
  OrderSpec none{Shuffle::kNone, 8, 4};
  EXPECT_EQ(Epoch(none, 3, 5), (std::vector<uint64_t>{0, 1, 2, 3, 4}));
}

TEST(EpochOrder, BlockedTouchesFewBlocksAtATime) {
  OrderSpec order{Shuffle::kBlocked, 16, 4};
  std::vector<uint64_t> rows = Epoch(order, 0, 16 * 40);
  for (size_t window = 0; window < rows.size(); window += 64) {
    std::set<uint64_t> blocks;
    for (size_t i = window; i < window + 64; ++i) blocks.insert(rows[i] / 16);
    EXPECT_EQ(blocks.size(), 4u);
  }
}

TEST(Mixture, HasExactSharesWhereAPeriodAllowsThem) {
  Mixture mixture({0.3, 0.0, 0.7});
  EXPECT_EQ(mixture.period(), 10u);
  EXPECT_EQ(mixture.count(0), 3u);
  EXPECT_EQ(mixture.count(1), 0u);
  EXPECT_EQ(mixture.count(2), 7u);
  EXPECT_EQ(Mixture({5}).period(), 1u);
  EXPECT_EQ(Mixture({1, 1}).period(), 2u);
  Mixture odd({std::sqrt(2.0), 1, 1e-9});
  EXPECT_EQ(odd.period(), kMaxPeriod);
  EXPECT_EQ(odd.count(2), 1u);
  EXPECT_EQ(odd.count(0) + odd.count(1) + odd.count(2), kMaxPeriod);
  EXPECT_NEAR(static_cast<double>(odd.count(0)), kMaxPeriod * std::sqrt(2.0) / (1 + std::sqrt(2.0)), 1.5);
}

TEST(Mixture, CountsTheDrawsOfEachDatasetWithoutGapsAndSmoothly) {
  const std::vector<double> weights = {2, 1, 0, 4.5, 0.25};
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  Mixture mixture(weights);
  std::vector<uint64_t> seen(weights.size());
  for (uint64_t p = 0; p < 3 * mixture.period(); ++p) {
    Mixture::Draw draw = mixture.At(p);
    EXPECT_EQ(draw.number, seen[draw.dataset]++);
    for (size_t d = 0; d < weights.size(); ++d) {
      EXPECT_NEAR(static_cast<double>(seen[d]), static_cast<double>(p + 1) * weights[d] / sum, 2.0);
    }
  }
  EXPECT_EQ(mixture.At(mixture.period() << 40).number, mixture.count(mixture.At(0).dataset) << 40);
}

TEST(Mixture, CountsTheDrawsBeforeAnyPosition) {
  Mixture mixture({2, 1, 0, 4.5});
  std::vector<uint64_t> seen(4);
  for (uint64_t p = 0; p < 3 * mixture.period(); ++p) {
    for (uint32_t d = 0; d < 4; ++d) ASSERT_EQ(mixture.CountBefore(d, p), seen[d]) << p;
    ++seen[mixture.At(p).dataset];
  }
}

Job MakeJob(const std::vector<double>& weights) {
  Job job;
  job.path = "job.yaml";
  job.seed = 11;
  job.batch.samples = 7;
  for (size_t d = 0; d < weights.size(); ++d)
    job.datasets.push_back({.name = absl::StrCat("d", d), .weight = weights[d]});
  return job;
}

// Every dataset passes each of its epochs completely before the next, each sample once.
void ExpectWholeEpochs(const Sampler& sampler, const std::vector<uint64_t>& sizes, uint64_t steps) {
  std::map<uint32_t, std::vector<uint64_t>> drawn;
  std::map<uint32_t, uint64_t> epochs;
  for (uint64_t step = 0; step < steps; ++step) {
    auto samples = sampler.Samples(step);
    ASSERT_TRUE(samples.ok()) << samples.status();
    ASSERT_EQ(samples->refs.size(), samples->lengths.size());
    for (const SampleRef& ref : samples->refs) {
      ASSERT_EQ(ref.epoch, epochs[ref.dataset]);
      drawn[ref.dataset].push_back(ref.index);
      if (drawn[ref.dataset].size() == sizes[ref.dataset]) {
        EXPECT_TRUE(EachOnce(drawn[ref.dataset])) << "dataset " << ref.dataset << " epoch " << ref.epoch;
        drawn[ref.dataset].clear();
        ++epochs[ref.dataset];
      }
    }
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    EXPECT_GE(epochs[static_cast<uint32_t>(d)], 2u);
  }
}

TEST(Sampler, DeliversEverySampleOnceInEveryEpochOfAMixture) {
  for (Shuffle shuffle : {Shuffle::kNone, Shuffle::kFull, Shuffle::kBlocked}) {
    Job job = MakeJob({1, 2.5, 0.3});
    job.order = {shuffle, 10, 3};
    std::vector<uint64_t> sizes = {97, 256, 1};
    FormulaIndex index(sizes);
    auto sampler = Sampler::Make(job, index);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    ExpectWholeEpochs(**sampler, sizes, 200);
  }
}

TEST(Sampler, SharesDrawsByRepetitionsOfTheSamples) {
  Job job = MakeJob({2, 0.5, 0});
  for (DatasetSpec& dataset : job.datasets) dataset.repeats = true;
  job.batch.samples = 10;
  FormulaIndex index({30, 80, 1000});
  auto sampler = Sampler::Make(job, index);
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  std::vector<uint64_t> drawn(3);
  for (uint64_t step = 0; step < 10; ++step) {
    const auto samples = (*sampler)->Samples(step);
    ASSERT_TRUE(samples.ok()) << samples.status();
    for (const SampleRef& ref : samples->refs) ++drawn[ref.dataset];
  }
  EXPECT_EQ(drawn, (std::vector<uint64_t>{60, 40, 0}));  // one epoch of the blend
}

TEST(Sampler, NamesARepeatedDatasetWithoutSamples) {
  Job job = MakeJob({2, 1});
  for (DatasetSpec& dataset : job.datasets) dataset.repeats = true;
  const absl::Status made = Sampler::Make(job, FormulaIndex({30, 0})).status();
  EXPECT_EQ(made.code(), absl::StatusCode::kFailedPrecondition) << made;
  EXPECT_NE(made.message().find("dataset 'd1' has a weight but no usable sample"), std::string::npos) << made;
}

Job ChangingJob() {
  Job job = MakeJob({1, 2.5, 0});
  job.datasets[0].changes = {{.from_draw = 151, .weight = 3}, {.from_draw = 700, .weight = 0}};
  job.datasets[1].changes = {{.from_draw = 400, .weight = 0.5}};
  job.datasets[2].changes = {{.from_draw = 151, .weight = 1}, {.from_draw = 1000, .weight = 4}};
  return job;
}

TEST(Sampler, KeepsEpochsWholeWhereWeightsChange) {
  const std::vector<uint64_t> sizes = {97, 120, 60};
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kFull, Shuffle::kBlocked}) {
    Job job = ChangingJob();
    job.order = {shuffle, 10, 3};
    FormulaIndex index(sizes);
    auto sampler = Sampler::Make(job, index);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    ExpectWholeEpochs(**sampler, sizes, 400);
  }
}

TEST(Sampler, DrawsByTheWeightsOfTheTime) {
  const Job job = ChangingJob();
  FormulaIndex index({97, 120, 60});
  const auto sampler = Sampler::Make(job, index);
  // 1 : 2.5 : 0; 3 : 2.5 : 1; 3 : 0.5 : 1; 0 : 0.5 : 1; 0 : 0.5 : 4.
  const std::vector<std::pair<uint64_t, std::vector<double>>> stages = {
      {0, {1, 2.5, 0}}, {151, {3, 2.5, 1}}, {400, {3, 0.5, 1}}, {700, {0, 0.5, 1}}, {1000, {0, 0.5, 4}}};
  for (size_t s = 0; s < stages.size(); ++s) {
    const uint64_t begin = stages[s].first, end = s + 1 < stages.size() ? stages[s + 1].first : 2000;
    std::vector<double> drawn(3);
    for (uint64_t draw = begin; draw < end; ++draw)
      ++drawn[(*sampler)->Samples(draw / 7)->refs[draw % 7].dataset];
    const std::vector<double>& weights = stages[s].second;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t d = 0; d < 3; ++d)
      EXPECT_NEAR(drawn[d], static_cast<double>(end - begin) * weights[d] / sum, 2) << begin << " " << d;
  }
}

TEST(Sampler, WhatComesLaterChangesNoEarlierStep) {
  FormulaIndex two({97, 120}), three({97, 120, 60});
  const Job before = MakeJob({1, 2.5});
  Job after = MakeJob({1, 2.5, 0});
  after.datasets[2].changes = {{.from_draw = 700, .weight = 1}};
  after.datasets[0].changes = {{.from_draw = 1400, .weight = 0}};
  const auto one = Sampler::Make(before, two), other = Sampler::Make(after, three);
  for (uint64_t step = 0; step < 100; ++step)
    EXPECT_EQ((*one)->Samples(step)->refs, (*other)->Samples(step)->refs);
  EXPECT_NE((*one)->Samples(100)->refs, (*other)->Samples(100)->refs);
}

TEST(Sampler, GivesAnyStepAloneInAnyOrder) {
  Job job = MakeJob({1, 2});
  FormulaIndex index({100, 50});
  auto one = Sampler::Make(job, index);
  auto other = Sampler::Make(job, index);
  ASSERT_TRUE(one.ok() && other.ok());
  for (uint64_t step : {1000000000000ull, 3ull, 0ull, 17ull}) {
    EXPECT_EQ((*one)->Samples(step)->refs, (*other)->Samples(step)->refs);
  }
  EXPECT_EQ((*one)->Samples(1ull << 63).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Sampler, RefusesADatasetWithoutSamplesUnlessItHasNoWeight) {
  FormulaIndex index({100, 0});
  EXPECT_EQ(Sampler::Make(MakeJob({1, 1}), index).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Sampler::Make(MakeJob({1, 0}), index).ok());
  EXPECT_EQ(Sampler::Make(MakeJob({0, 0}), index).status().code(), absl::StatusCode::kInvalidArgument);
}

// The fewest steps and, among those, the least full fullest step: against all ways to cut.
TEST(CutWindow, IsTheBestCutOfSmallWindows) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 400; ++round) {
    size_t n = 1 + random() % 9;
    uint64_t budget = 5 + random() % 30;
    std::vector<uint32_t> lengths(n);
    for (uint32_t& length : lengths) length = static_cast<uint32_t>(1 + random() % budget);
    std::pair<size_t, uint64_t> best{n + 1, 0};
    for (uint32_t cuts = 0; cuts < 1u << (n - 1); ++cuts) {
      uint64_t load = 0, fullest = 0;
      size_t steps = 1;
      for (size_t i = 0; i < n; ++i) {
        if (i > 0 && cuts >> (i - 1) & 1) {
          ++steps;
          load = 0;
        }
        load += lengths[i];
        fullest = std::max(fullest, load);
      }
      if (fullest <= budget) best = std::min(best, {steps, fullest});
    }
    std::vector<uint32_t> starts = CutWindow(lengths, budget);
    uint64_t fullest = 0;
    for (size_t s = 0; s < starts.size(); ++s) {
      size_t end = s + 1 < starts.size() ? starts[s + 1] : n;
      fullest =
          std::max<uint64_t>(fullest, std::accumulate(&lengths[starts[s]], &lengths[0] + end, uint64_t{0}));
    }
    EXPECT_EQ(std::make_pair(starts.size(), fullest), best);
  }
}

TEST(CutWindow, GivesASampleAboveTheBudgetAStepOfItsOwn) {
  EXPECT_EQ(CutWindow(std::vector<uint32_t>{3, 99, 3, 3}, 10), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(CutWindow(std::vector<uint32_t>{99}, 10), (std::vector<uint32_t>{0}));
}

class TokenBudget : public ::testing::Test {
 protected:
  TokenBudget() : job_(MakeJob({2, 1})), index_(sizes_) {
    job_.index = folder_.path();
    job_.batch = {0, 2000, 30};
  }
  std::unique_ptr<Sampler> Make() {
    auto sampler = Sampler::Make(job_, index_);
    EXPECT_TRUE(sampler.ok());
    return *std::move(sampler);
  }
  TempFolder folder_;
  std::vector<uint64_t> sizes_ = {300, 111};
  Job job_;
  FormulaIndex index_;
};

TEST_F(TokenBudget, KeepsToTheBudgetAndDeliversEverySampleOnce) {
  auto sampler = Make();
  for (uint64_t step = 0; step < 300; ++step) {
    auto samples = sampler->Samples(step);
    ASSERT_TRUE(samples.ok()) << samples.status();
    ASSERT_FALSE(samples->refs.empty());
    uint64_t tokens = 0;
    for (const SampleLengths& lengths : samples->lengths) tokens += lengths.llm_length;
    EXPECT_LE(tokens, 2000u);
  }
  ExpectWholeEpochs(*sampler, sizes_, 300);
}

TEST_F(TokenBudget, IsTheSameFromTheFolderFromMemoryAndFromAnyStep) {
  std::vector<StepSamples> steps;
  auto compiled = Make();
  for (uint64_t step = 0; step < 1500; ++step) steps.push_back(*compiled->Samples(step));
  EXPECT_EQ(folder_.Files().size(), 1u) << "one file holds 65,536 windows";
  std::map<std::string, std::string> files;
  for (const std::string& file : folder_.Files()) files[file] = ReadFile(folder_.path() + "/" + file);
  auto loaded = Make();
  for (uint64_t step : {1499u, 0u, 700u, 3u})
    EXPECT_EQ(loaded->Samples(step)->refs, steps[step].refs) << step;
  // A folder that takes no table: a file stands in the way, which works for root too.
  job_.index = folder_.Write("file", "x");
  auto unwritable = Make();
  for (uint64_t step : {1499u, 0u, 700u, 3u})
    EXPECT_EQ(unwritable->Samples(step)->refs, steps[step].refs) << step;
  // Damaged tables are compiled again, into the same bytes.
  job_.index = folder_.path();
  for (const auto& [file, bytes] : files) {
    std::string damaged = bytes;
    damaged[4100] ^= 1;
    folder_.Write(file, damaged);
  }
  auto mended = Make();
  EXPECT_EQ(mended->Samples(1499)->refs, steps[1499].refs);
  for (const auto& [file, bytes] : files) EXPECT_EQ(ReadFile(folder_.path() + "/" + file), bytes);
}

// Counts the rows that tables are compiled from, and may hold their reader.
class WatchedIndex : public FormulaIndex {
 public:
  using FormulaIndex::FormulaIndex;
  absl::StatusOr<uint32_t> llm_length(uint32_t dataset, uint64_t index) const override {
    ++compiled;
    while (held) std::this_thread::yield();
    return FormulaIndex::llm_length(dataset, index);
  }
  mutable std::atomic<uint64_t> compiled{0};
  std::atomic<bool> held{false};
};

// Until Samples(step) answers.
StepSamples Reach(const Sampler& sampler, uint64_t step, uint64_t* slices = nullptr) {
  for (;;) {
    absl::StatusOr<StepSamples> samples = sampler.Samples(step);
    if (KindOf(samples.status()) != FailureKind::kNotYet) {
      EXPECT_TRUE(samples.ok()) << samples.status();
      return samples.ok() ? *samples : StepSamples();
    }
    absl::StatusOr<bool> reached = sampler.Extend(step);
    EXPECT_TRUE(reached.ok()) << reached.status();
    if (!reached.ok()) return {};
    if (slices != nullptr) ++*slices;
  }
}

class FarSteps : public TokenBudget {
 protected:
  std::unique_ptr<Sampler> MakeWatched() {
    auto sampler = Sampler::Make(job_, watched_);
    EXPECT_TRUE(sampler.ok());
    return *std::move(sampler);
  }
  WatchedIndex watched_{sizes_};
};

TEST_F(FarSteps, BeyondReachAreRefusedAfterLittleWorkWithTheLargestThatIsNot) {
  auto sampler = MakeWatched();
  for (uint64_t step : {uint64_t{1000000000000}, uint64_t{1} << 63, UINT64_MAX}) {
    const absl::Status status = sampler->Samples(step).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_NE(status.message().find("the largest step that can be asked for now is about "),
              absl::string_view::npos);
    EXPECT_EQ(sampler->Extend(step).status().code(), absl::StatusCode::kOutOfRange);
  }
  EXPECT_LE(watched_.compiled, 2 * job_.batch.window_samples);
  EXPECT_LE(folder_.Files().size(), 1u);
}

TEST_F(FarSteps, CostABoundedAmountOfWorkACall) {
  auto sampler = MakeWatched();
  const uint64_t far = 200000;
  uint64_t before = watched_.compiled;
  EXPECT_EQ(KindOf(sampler->Samples(far).status()), FailureKind::kNotYet);
  EXPECT_LE(watched_.compiled - before, kAtOnceDraws + 2 * job_.batch.window_samples);
  for (bool reached = false; !reached;) {
    before = watched_.compiled;
    auto extended = sampler->Extend(far);
    ASSERT_TRUE(extended.ok()) << extended.status();
    reached = *extended;
    EXPECT_LE(watched_.compiled - before, kSliceDraws + 2 * job_.batch.window_samples);
  }
}

TEST_F(FarSteps, AreThoseOfAWalkThroughAllStepsBeforeWhateverKeepsTheTable) {
  auto walked = Make();
  constexpr uint64_t kFar = 40000;
  std::vector<StepSamples> last;
  for (uint64_t step = 0; step <= kFar; ++step) {
    auto samples = walked->Samples(step);
    ASSERT_TRUE(samples.ok()) << samples.status();
    if (step + 5 > kFar) last.push_back(*std::move(samples));
  }
  job_.index = folder_.path() + "/fresh";
  uint64_t slices = 0;
  auto resumed = Make();
  EXPECT_EQ(Reach(*resumed, kFar, &slices).refs, last.back().refs);
  EXPECT_GT(slices, 0u) << "the test is to see a step that is not reached at once";
  job_.index = folder_.Write("no folder", "x");  // of which nothing can be made, also by root
  auto unwritable = Make();
  EXPECT_EQ(Reach(*unwritable, kFar).refs, last.back().refs);
  for (const StepSamples& samples : last) {
    EXPECT_EQ(resumed->Samples(samples.step)->refs, samples.refs);
    EXPECT_EQ(unwritable->Samples(samples.step)->refs, samples.refs);
  }
}

TEST_F(FarSteps, AreCompiledOnceForAllWhoShareTheFolder) {
  constexpr uint64_t kFar = 40000;
  Reach(*MakeWatched(), kFar);
  EXPECT_GT(watched_.compiled, kAtOnceDraws);
  watched_.compiled = 0;
  EXPECT_EQ(MakeWatched()->Samples(kFar)->step, kFar);
  EXPECT_LE(watched_.compiled, kAtOnceDraws / 8) << "all but the last windows";
  // One that already has a part of the table takes over the rest.
  auto behind = MakeWatched();
  ASSERT_TRUE(behind->Samples(0).ok());
  Reach(*MakeWatched(), 2 * kFar);
  watched_.compiled = 0;
  EXPECT_EQ(*behind->Extend(2 * kFar), true);
  EXPECT_LE(watched_.compiled, kAtOnceDraws / 8) << "all but the last windows";
}

// Steps of each window, as the one file of the table stores them.
std::vector<uint64_t> StoredCounts(const std::string& path) {
  std::unique_ptr<ByteSource> files = MakeFileSource();
  PageCache cache(1 << 20);
  auto file = PagedFile::Open(*files, cache, path, FileKind::kSteps);
  EXPECT_TRUE(file.ok()) << file.status();
  std::vector<uint64_t> counts;
  for (uint64_t at = 0; file.ok() && at < (*file)->section_bytes(0); at += 4) {
    std::array<std::byte, 4> count;
    EXPECT_TRUE((*file)->Read(0, at, count).ok());
    counts.push_back(GetLittle(reinterpret_cast<const char*>(count.data()), 4));
  }
  return counts;
}

TEST_F(FarSteps, CompileAndStoreNoWindowAfterTheirOwn) {
  for (uint64_t step : {0u, 1u, 999u, 40000u}) {
    TempFolder folder;
    job_.index = folder.path();
    watched_.compiled = 0;
    auto sampler = MakeWatched();
    for (absl::StatusOr<bool> reached = false; !*reached;) {
      reached = sampler->Extend(step);
      ASSERT_TRUE(reached.ok()) << reached.status();
    }
    const std::vector<std::string> files = folder.Files();
    ASSERT_EQ(files.size(), 1u);
    const std::vector<uint64_t> counts = StoredCounts(folder.path() + "/" + files[0]);
    const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    EXPECT_GT(total, step);
    EXPECT_LE(total - counts.back(), step) << "the last window is the step's own";
    EXPECT_EQ(watched_.compiled, counts.size() * job_.batch.window_samples);
  }
}

TEST_F(FarSteps, KeepFewFiles) {
  job_.batch.window_samples = 1;  // as many windows as draws
  constexpr uint64_t kFar = 3 * kFileWindows + 100;
  auto sampler = MakeWatched();
  const StepSamples expected = Reach(*sampler, kFar);
  EXPECT_EQ(folder_.Files().size(), 4u);
  watched_.compiled = 0;
  EXPECT_EQ(Reach(*MakeWatched(), kFar).refs, expected.refs);
  EXPECT_LE(watched_.compiled, kAtOnceDraws / 8) << "all but the last windows";
}

TEST_F(FarSteps, DoNotKeepNearStepsWaiting) {
  auto sampler = MakeWatched();
  const auto expected = sampler->Samples(1);
  ASSERT_TRUE(expected.ok());
  watched_.held = true;
  const uint64_t before = watched_.compiled;
  std::thread far([&] { EXPECT_TRUE(sampler->Extend(30000).ok()); });
  while (watched_.compiled == before) std::this_thread::yield();
  EXPECT_EQ(sampler->Samples(1)->refs, expected->refs);
  EXPECT_EQ(KindOf(sampler->Samples(30000).status()), FailureKind::kNotYet);
  EXPECT_EQ(sampler->Samples(1000000000000).status().code(), absl::StatusCode::kOutOfRange);
  watched_.held = false;
  far.join();
}

TEST_F(FarSteps, AreReachedByManyThreadsAtOnce) {
  auto sampler = MakeWatched();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { Reach(*sampler, 30000 + 100 * t); });
  }
  for (std::thread& thread : threads) thread.join();
  job_.index = folder_.path() + "/fresh";
  auto alone = Make();
  for (uint64_t step : {30300u, 30000u, 29000u, 17u})
    EXPECT_EQ(Reach(*sampler, step).refs, Reach(*alone, step).refs);
}

TEST_F(TokenBudget, HasItsOwnTablePerJob) {
  auto first = Make()->Samples(5);
  job_.seed = 12;
  auto second = Make()->Samples(5);
  EXPECT_NE(first->refs, second->refs);
  job_.seed = 11;
  EXPECT_EQ(Make()->Samples(5)->refs, first->refs);
  job_.datasets[0].changes = {{.from_draw = 20, .weight = job_.datasets[0].weight + 1}};
  const auto changed = Make()->Samples(5);
  EXPECT_NE(changed->refs, first->refs);
  EXPECT_EQ(Make()->Samples(5)->refs, changed->refs);
  job_.datasets[0].changes.clear();
  for (DatasetSpec& dataset : job_.datasets) dataset.repeats = true;
  const auto repeated = Make()->Samples(25);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  job_.index = folder_.path() + "/fresh";
  EXPECT_EQ(Make()->Samples(25)->refs, repeated->refs);
}

}  // namespace
}  // namespace evenkeel::dataset
