// Steps of bins, from the sampler to the plan: exact epochs, the same bins whatever reads them, full and alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/job.h"
#include "dataset/index/index.h"
#include "dataset/order/packed_windows.h"
#include "dataset/order/sampler.h"
#include "reorder/pack/pack.h"
#include "reorder/planner.h"
#include "stream/bin_packer.h"
#include "stream/stream.h"

namespace evenkeel::stream {
namespace {

constexpr uint32_t kTokens = 4096, kPatches = 9216;

// Texts with up to three pictures, seldom a long one.
SampleLengths RandomLengths(std::mt19937_64& random) {
  SampleLengths out;
  const size_t pictures = random() % 4;
  for (size_t i = 0; i < pictures; ++i) {
    const auto patches = static_cast<uint32_t>(4 * (16 + random() % 500));
    out.items.push_back(
        {.medium = Medium::kImage,
         .lengths = {.cost_length = patches, .input_rows = patches, .output_rows = patches / 4}});
    out.llm_length += patches / 4;
  }
  out.llm_length += static_cast<uint32_t>(random() % 16 == 0 ? 1000 + random() % 1000 : 20 + random() % 300);
  out.loss_tokens = out.llm_length / 2;
  return out;
}

class LengthIndex : public dataset::Index {
 public:
  LengthIndex(std::vector<uint64_t> sizes, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t size : sizes) {
      std::vector<SampleLengths>& of_dataset = lengths_.emplace_back();
      for (uint64_t i = 0; i < size; ++i) of_dataset.push_back(RandomLengths(random));
    }
  }
  Digest digest() const override { return DigestOf("lengths"); }
  uint64_t num_samples(uint32_t dataset) const override { return lengths_[dataset].size(); }
  absl::StatusOr<SampleLengths> lengths(uint32_t dataset, uint64_t index) const override {
    ++reads;
    return lengths_[dataset][index];
  }
  absl::StatusOr<dataset::SamplePlaces> places(uint32_t, uint64_t) const override {
    return absl::UnimplementedError("no shards");
  }
  mutable std::atomic<uint64_t> reads{0};

 private:
  std::vector<std::vector<SampleLengths>> lengths_;
};

Job PackingJob(uint32_t bins, uint32_t ranks, size_t datasets = 1) {
  Job job;
  job.seed = 3;
  job.index = "/dev/null/none";  // no table is stored
  for (size_t d = 0; d < datasets; ++d)
    job.datasets.push_back({.name = std::string(1, static_cast<char>('a' + d))});
  job.batch.window_samples = 2000;
  job.batch.pack = {.bins = bins, .capacities = {{"llm", kTokens}, {"vision", kPatches}}};
  std::vector<uint32_t> all(ranks);
  for (uint32_t r = 0; r < ranks; ++r) all[r] = r;
  job.phases.push_back({.phase = Phase::kLlm, .ranks = all});
  job.phases.push_back({.phase = Phase("vision", 1, {Medium::kImage}), .ranks = all, .min_items = 1});
  return job;
}

std::unique_ptr<dataset::Sampler> SamplerOf(const Job& job, const dataset::Index& index) {
  EXPECT_TRUE(reorder::CheckJob(job).ok()) << reorder::CheckJob(job);
  auto sampler = dataset::Sampler::Make(job, index, PackerOf(job));
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

TEST(WindowDraws, DivideTheEpochOfAnOnlyDataset) {
  for (uint64_t epoch : {1, 2, 7, 99, 100, 101, 1000, 1001}) {
    for (uint64_t window : {1, 3, 100, 5000}) {
      const dataset::WindowDraws draws(window, epoch);
      std::set<uint64_t> firsts;
      for (uint64_t w = 0; draws.First(w) <= 3 * epoch; ++w) {
        firsts.insert(draws.First(w));
        EXPECT_GE(draws.Count(w), 1u);
        EXPECT_LE(draws.Count(w), std::min(window, epoch));
        EXPECT_LE(draws.Count(w), draws.most());
      }
      for (uint64_t e = 0; e <= 3; ++e) EXPECT_TRUE(firsts.contains(e * epoch)) << epoch << " " << window;
    }
  }
  EXPECT_EQ(dataset::WindowDraws(100, 0).First(7), 700u);
}

TEST(PackedSteps, HaveEverySampleOnceAnEpochWithinTheCapacities) {
  for (const char* algorithm : {"even_fill", "omnibal", "best_fit_decreasing"}) {
    Job job = PackingJob(/*bins=*/16, /*ranks=*/4);
    job.batch.pack.algorithm = algorithm;
    const LengthIndex index({5003}, 1);
    const auto sampler = SamplerOf(job, index);
    std::map<uint64_t, std::set<uint64_t>> seen;  // rows by epoch
    uint64_t last_epoch = 0;
    for (uint64_t step = 0; last_epoch < 3; ++step) {
      const auto samples = sampler->Samples(step);
      ASSERT_TRUE(samples.ok()) << samples.status();
      ASSERT_EQ(samples->bin_begin.size(), 17u);
      std::set<uint64_t> epochs;
      for (const SampleRef& ref : samples->refs) {
        EXPECT_TRUE(seen[ref.epoch].insert(ref.index).second) << algorithm << " twice: " << ref.index;
        epochs.insert(ref.epoch);
      }
      EXPECT_EQ(epochs.size(), 1u) << "a step of two epochs";
      if (*epochs.begin() > last_epoch) {
        EXPECT_EQ(seen[last_epoch].size(), 5003u);
      }
      last_epoch = *epochs.begin();
      for (size_t b = 0; b < 16; ++b) {
        uint64_t tokens = 0, patches = 0;
        for (uint32_t s = samples->bin_begin[b]; s < samples->bin_begin[b + 1]; ++s) {
          tokens += samples->lengths[s].llm_length;
          for (const SampleItem& item : samples->lengths[s].items) patches += item.lengths.cost_length;
        }
        EXPECT_LE(tokens, kTokens);
        EXPECT_LE(patches, kPatches);
        EXPECT_GT(tokens, 0u) << "an empty bin";
      }
    }
  }
}

TEST(PackedSteps, SeveralDatasetsKeepTheirSharesAndEpochs) {
  Job job = PackingJob(8, 2, /*datasets=*/2);
  job.datasets[1].weight = 3;
  const LengthIndex index({700, 900}, 2);
  const auto sampler = SamplerOf(job, index);
  std::map<std::pair<uint32_t, uint64_t>, std::set<uint64_t>> seen;
  std::vector<double> drawn(2);
  for (uint64_t step = 0; step < 300; ++step) {
    const auto samples = sampler->Samples(step);
    ASSERT_TRUE(samples.ok()) << samples.status();
    for (const SampleRef& ref : samples->refs) {
      EXPECT_TRUE(seen[std::pair(ref.dataset, ref.epoch)].insert(ref.index).second);
      ++drawn[ref.dataset];
    }
  }
  EXPECT_NEAR(drawn[1] / drawn[0], 3, 0.05);
  for (const auto& [of, rows] : seen) {
    const bool is_last = !seen.contains({of.first, of.second + 1});
    const uint64_t size = of.first == 0 ? 700 : 900;
    // Windows end between steps, so an epoch may miss what the next steps of its last window have.
    if (!is_last && seen.contains({of.first, of.second + 4})) {
      EXPECT_EQ(rows.size(), size);
    }
  }
}

TEST(PackedSteps, AreTheSameWhateverAsksForThem) {
  const LengthIndex index({5003}, 4);
  const Job one = PackingJob(24, 2);
  const Job other = PackingJob(24, 12);  // other ranks, asked backwards
  const auto forwards = SamplerOf(one, index), backwards = SamplerOf(other, index);
  EXPECT_EQ(StreamDigest(one, index.digest(), index.digest()),
            StreamDigest(other, index.digest(), index.digest()));
  for (uint64_t step = 0; step < 40; ++step) {
    const auto expected = forwards->Samples(step);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto alone = SamplerOf(other, index)->Samples(step);
    const auto again = backwards->Samples(39 - step);
    ASSERT_TRUE(alone.ok() && again.ok());
    EXPECT_EQ(alone->refs, expected->refs);
    EXPECT_EQ(alone->bin_begin, expected->bin_begin);
  }
  EXPECT_EQ(backwards->Samples(7)->refs, forwards->Samples(7)->refs);
}

#ifndef EVENKEEL_SANITIZED  // which changes no figure
// What `solve` reaches for all samples at once, windows reach nearly.
TEST(PackedSteps, AreAsFullAndAlikeAsOnePacking) {
  Job job = PackingJob(/*bins=*/16, /*ranks=*/4);
  job.batch.window_samples = 1 << 16;
  const LengthIndex index({20000}, 5);
  const auto sampler = SamplerOf(job, index);
  std::vector<SampleLengths> all;
  reorder::Packing packing{.capacities = {kTokens, kPatches}};
  for (uint64_t step = 0;; ++step) {
    const auto samples = sampler->Samples(step);
    ASSERT_TRUE(samples.ok()) << samples.status();
    if (samples->refs.front().epoch > 0) break;
    for (size_t b = 0; b < 16; ++b, ++packing.num_bins) {
      for (uint32_t s = samples->bin_begin[b]; s < samples->bin_begin[b + 1]; ++s) {
        all.push_back(samples->lengths[s]);
        packing.bin.push_back(packing.num_bins);
      }
    }
  }
  reorder::PackInput input{.devices = 16, .seed = 1};
  input.phases = *PackPhasesOf(job, all);
  ASSERT_TRUE(reorder::PackCheck(input, packing).ok()) << reorder::PackCheck(input, packing);
  const reorder::PackFigures in_windows = reorder::MeasurePack(input, packing);
  const auto whole = reorder::Pack(input);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const reorder::PackFigures at_once = reorder::MeasurePack(input, *whole);
  EXPECT_GE(in_windows.fill, at_once.fill - 0.01);
  for (size_t p = 0; p < 2; ++p) {
    EXPECT_LE(in_windows.phases[p].distribution_ratio, at_once.phases[p].distribution_ratio + 0.01) << p;
  }
}
#endif

TEST(PackedSteps, AreMicrobatchesOfRanksInEveryPlan) {
  const LengthIndex index({5003}, 6);
  for (uint32_t ranks : {1, 2, 4, 8}) {
    const Job job = PackingJob(16, ranks);
    const auto sampler = SamplerOf(job, index);
    reorder::DummyItems dummies{};
    dummies[1] = {.medium = Medium::kImage, .lengths = {.cost_length = 4, .input_rows = 4, .output_rows = 1}};
    for (uint64_t step = 0; step < 10; ++step) {
      const auto samples = sampler->Samples(step);
      ASSERT_TRUE(samples.ok()) << samples.status();
      const auto plan = reorder::MakePlan(job, *samples, dummies);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_TRUE(reorder::PlanCheck(job, *samples, *plan).ok()) << reorder::PlanCheck(job, *samples, *plan);
      EXPECT_EQ(plan->num_microbatches, 16 / ranks);
    }
  }
  auto samples = SamplerOf(PackingJob(16, 1), index)->Samples(0);
  EXPECT_EQ(reorder::MakePlan(PackingJob(16, 3), *samples, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The sum over steps of the bin that attends longest.
double Waited(const Job& job, const dataset::Index& index) {
  const auto sampler = SamplerOf(job, index);
  double waited = 0;
  for (uint64_t step = 0;; ++step) {
    const auto samples = sampler->Samples(step);
    EXPECT_TRUE(samples.ok()) << samples.status();
    if (!samples.ok() || samples->refs.front().epoch > 0) return waited;
    double most = 0;
    for (size_t b = 0; b + 1 < samples->bin_begin.size(); ++b) {
      double attention = 0;
      for (uint32_t s = samples->bin_begin[b]; s < samples->bin_begin[b + 1]; ++s) {
        attention += static_cast<double>(samples->lengths[s].llm_length) * samples->lengths[s].llm_length;
      }
      most = std::max(most, attention);
    }
    waited += most;
  }
}

TEST(PackedSteps, PutHeavyBinsTogetherWhereTheJobAsks) {
  const LengthIndex index({6000}, 7);
  Job job = PackingJob(16, 4);
  job.batch.window_samples = 6000;
  const double mixed = Waited(job, index);
  job.order.heavy = 3;
  EXPECT_LT(Waited(job, index), 0.95 * mixed);
}

TEST(PackedSteps, TooFewSamplesLeaveBinsEmpty) {
  const Job job = PackingJob(16, 4);
  const LengthIndex index({5}, 8);
  const auto samples = SamplerOf(job, index)->Samples(3);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples->refs.size(), 5u);
  EXPECT_EQ(samples->bin_begin.size(), 17u);
  reorder::DummyItems dummies{};
  dummies[1] = {.medium = Medium::kImage, .lengths = {.cost_length = 4, .input_rows = 4, .output_rows = 1}};
  const auto plan = reorder::MakePlan(job, *samples, dummies);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(reorder::PlanCheck(job, *samples, *plan).ok());
}

TEST(PackedSteps, NameASampleThatNoBinHolds) {
  Job job = PackingJob(16, 4);
  job.batch.pack.capacities[1].length = 100;  // of vision
  const LengthIndex index({500}, 9);
  const absl::Status status = SamplerOf(job, index)->Samples(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("in phase vision, more than a bin's capacity of 100"), std::string::npos)
      << status;
}

TEST(PackedSteps, ReadAWindowOnceForItsSteps) {
  const Job job = PackingJob(16, 4);
  const LengthIndex index({2000}, 10);
  const auto sampler = SamplerOf(job, index);
  ASSERT_TRUE(sampler->Samples(0).ok());
  const uint64_t before = index.reads;
  const auto second = sampler->Samples(1);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(index.reads - before, second->refs.size());
}

TEST(BinPacker, RefusesAnUnknownAlgorithm) {
  Job job = PackingJob(16, 4);
  job.batch.pack.algorithm = "tetris";
  const absl::Status status = reorder::CheckJob(job);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("even_fill"), std::string::npos) << status;
}

}  // namespace
}  // namespace evenkeel::stream
