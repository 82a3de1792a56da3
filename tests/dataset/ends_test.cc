// Streams that end after max_epochs: every dataset is drawn that often and no more, and the number of steps is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "dataset/order/draws.h"
#include "dataset/order/mixture.h"
#include "dataset/order/sampler.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::HasSubstr;

// Datasets of these sizes, whose samples are texts.
class TextIndex : public Index {
 public:
  explicit TextIndex(std::vector<uint64_t> sizes) : sizes_(std::move(sizes)) {}
  Digest digest() const override { return DigestOf(std::string_view("ends")); }
  uint64_t num_samples(uint32_t dataset) const override { return sizes_[dataset]; }
  absl::StatusOr<SampleLengths> lengths(uint32_t dataset, uint64_t index) const override {
    const auto length = static_cast<uint32_t>(1 + (index * 7919 + dataset) % 97);
    return SampleLengths{.llm_length = length, .loss_tokens = length - 1};
  }
  absl::StatusOr<SamplePlaces> places(uint32_t, uint64_t) const override { return SamplePlaces(); }

 private:
  const std::vector<uint64_t> sizes_;
};

// Bins of one sample each, and empty ones up to whole steps.
class OneEach : public Packer {
 public:
  explicit OneEach(size_t bins) : bins_(bins) {}
  absl::Status Check(const SampleLengths&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::vector<uint32_t>>> Pack(std::span<const SampleLengths> samples,
                                                          uint64_t) const override {
    std::vector<std::vector<uint32_t>> out((samples.size() + bins_ - 1) / bins_ * bins_);
    for (uint32_t i = 0; i < samples.size(); ++i) out[i].push_back(i);
    return out;
  }

 private:
  const size_t bins_;
};

enum class Batch { kSamples, kTokens, kBins, kChunks };
constexpr Batch kBatches[] = {Batch::kSamples, Batch::kTokens, Batch::kBins, Batch::kChunks};

Job MakeJob(const TempFolder& folder, Batch batch, const std::vector<double>& max_epochs,
            const std::vector<double>& weights) {
  Job job;
  job.path = "job.yaml";
  job.seed = 5;
  job.index = folder.path();
  for (size_t d = 0; d < max_epochs.size(); ++d)
    job.datasets.push_back({.name = absl::StrCat("d", d), .weight = weights[d], .max_epochs = max_epochs[d]});
  if (batch == Batch::kSamples) job.batch = {.samples = 7};
  if (batch == Batch::kTokens) job.batch = {.llm_tokens = 300, .window_samples = 64};
  if (batch == Batch::kBins) job.batch = {.window_samples = 64, .pack = {.bins = 4}};
  if (batch == Batch::kChunks) job.batch = {.window_samples = 64, .chunk = {.length = 50, .count = 3}};
  return job;
}

std::unique_ptr<Sampler> Make(const Job& job, const Index& index) {
  return *Sampler::Make(job, index, std::make_unique<OneEach>(std::max(1u, job.batch.pack.bins)));
}

// The step, or nothing past the end.
std::optional<StepSamples> Reach(const Sampler& sampler, uint64_t step) {
  for (;;) {
    absl::StatusOr<StepSamples> samples = sampler.Samples(step);
    if (samples.ok()) return *std::move(samples);
    if (absl::IsOutOfRange(samples.status())) return std::nullopt;
    if (KindOf(samples.status()) != FailureKind::kNotYet) ADD_FAILURE() << samples.status();
    const absl::StatusOr<bool> extended = sampler.Extend(step);
    if (absl::IsOutOfRange(extended.status())) return std::nullopt;
    EXPECT_TRUE(extended.ok()) << extended.status();
  }
}

// How often each sample of each dataset came: of chunks how many of its tokens.
std::map<std::pair<uint32_t, uint64_t>, uint64_t> CountAll(const Sampler& sampler, uint64_t steps) {
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> counts;
  for (uint64_t s = 0; s < steps; ++s) {
    const std::optional<StepSamples> step = Reach(sampler, s);
    if (!step) {
      ADD_FAILURE() << s << " of " << steps << " steps";
      return counts;
    }
    for (size_t i = 0; i < step->refs.size(); ++i)
      counts[{step->refs[i].dataset, step->refs[i].index}] +=
          step->pieces.empty() ? 1 : step->lengths[i].llm_length;
  }
  return counts;
}

// No step but the last of samples and of chunks, which would not be whole, leaves anything out.
TEST(Ends, GiveEveryEpochAndNoMore) {
  const TextIndex index({137, 40, 211});
  for (const Batch batch : kBatches) {
    for (const Shuffle shuffle : {Shuffle::kFull, Shuffle::kNone}) {
      const TempFolder folder;
      Job job = MakeJob(folder, batch, {2, 3, 1}, {0.5, 0.1, 0.4});
      job.order.shuffle = shuffle;
      const auto sampler = Make(job, index);
      const std::optional<uint64_t> steps = *sampler->NumSteps();
      ASSERT_TRUE(steps.has_value());
      EXPECT_FALSE(Reach(*sampler, *steps).has_value());
      EXPECT_FALSE(Reach(*Make(job, index), *steps + 100000).has_value());  // asked for first
      uint64_t delivered = 0, wanted = 0;
      for (const auto& [sample, count] : CountAll(*sampler, *steps)) {
        const uint64_t length =
            job.batch.chunk.count > 0 ? index.lengths(sample.first, sample.second)->llm_length : 1;
        EXPECT_LE(count, length * static_cast<uint64_t>(job.datasets[sample.first].max_epochs));
        delivered += count;
      }
      for (uint32_t d = 0; d < 3; ++d) {
        for (uint64_t i = 0; i < index.num_samples(d); ++i) {
          const uint64_t length = job.batch.chunk.count > 0 ? index.lengths(d, i)->llm_length : 1;
          wanted += length * static_cast<uint64_t>(job.datasets[d].max_epochs);
        }
      }
      EXPECT_LE(delivered, wanted);
      EXPECT_LT(wanted - delivered, batch == Batch::kSamples ? 7u : batch == Batch::kChunks ? 150u : 1u);
    }
  }
}

TEST(Ends, LeaveEarlierDrawsAsTheyAre) {
  const TextIndex index({50, 400});
  const TempFolder folder;
  const Job endless = MakeJob(folder, Batch::kSamples, {0, 0}, {1, 3});
  const Job ending = MakeJob(folder, Batch::kSamples, {2, 0}, {1, 3});
  const auto a = *Draws::Make(endless, index), b = *Draws::Make(ending, index);
  EXPECT_EQ(b.end(), kNever);
  uint64_t of_first = 0, position = 0;
  for (; of_first < 100; ++position) {
    ASSERT_EQ(a.At(position), b.At(position));
    of_first += b.At(position).dataset == 0;
  }
  EXPECT_NEAR(static_cast<double>(position), 400, 4);
  // The other goes on alone, in the order of its own draws.
  uint64_t later = position;
  for (uint64_t i = 0; i < 2000; ++i) {
    while (a.At(later).dataset == 0) ++later;
    ASSERT_EQ(b.At(position + i), a.At(later++));
  }
}

// Draws by their definition: the mixture of those that are left, begun again whenever one has had its epochs or weights change.
TEST(Ends, AreThoseOfDrawingOneByOne) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> sizes;
    std::vector<double> epochs, weights;
    for (uint64_t d = 0, count = 1 + random() % 5; d < count; ++d) {
      sizes.push_back(1 + random() % 60);
      epochs.push_back(std::vector<double>{1, 2, 0.5, 1.75, 3}[random() % 5]);
      weights.push_back(static_cast<double>(1 + random() % 9));
    }
    const TextIndex index(sizes);
    const TempFolder folder;
    Job job = MakeJob(folder, Batch::kSamples, epochs, weights);
    job.order.shuffle = Shuffle::kNone;
    if (random() % 2 == 0) job.datasets[0].changes = {{.from_draw = 3, .weight = 11}};
    const auto draws = *Draws::Make(job, index);
    std::vector<uint64_t> had(sizes.size()), most;
    for (size_t d = 0; d < sizes.size(); ++d)
      most.push_back(
          std::max<uint64_t>(1, static_cast<uint64_t>(epochs[d] * static_cast<double>(sizes[d]) + 0.5)));
    uint64_t position = 0, first = 0;
    std::vector<double> current;
    for (;; ++position) {
      std::vector<double> now;
      for (uint32_t d = 0; d < sizes.size(); ++d)
        now.push_back(had[d] < most[d] ? job.datasets[d].WeightAt(position) : 0);
      if (std::accumulate(now.begin(), now.end(), 0.0) == 0) break;
      if (now != current) {
        current = now;
        first = position;
      }
      const SampleRef ref = draws.At(position);
      ASSERT_EQ(ref.dataset, Mixture(current).At(position - first).dataset) << round << " at " << position;
      EXPECT_EQ(ref.epoch * sizes[ref.dataset] + ref.index, had[ref.dataset]++);
    }
    EXPECT_EQ(draws.end(), position);
    EXPECT_EQ(had, most);
  }
}

TEST(Ends, OfLevelledWindowsAreExact) {
  const TextIndex index({1000});
  const TempFolder folder;
  Job job = MakeJob(folder, Batch::kSamples, {1}, {1});
  job.order.heavy = 1.5;
  job.order.level_steps = 9;
  const auto sampler = Make(job, index);
  EXPECT_EQ(**sampler->NumSteps(), 142u);
  const auto counts = CountAll(*sampler, 142);
  EXPECT_EQ(counts.size(), 994u);
  for (const auto& [sample, count] : counts) EXPECT_EQ(count, 1u);
}

TEST(Ends, OfOneDatasetAreMissing) {
  const TextIndex index({50, 60});
  for (const Batch batch : kBatches) {
    const TempFolder folder;
    const Job job = MakeJob(folder, batch, {1, 0}, {1, 1});
    const auto sampler = Make(job, index);
    EXPECT_EQ(*sampler->NumSteps(), std::nullopt);
    EXPECT_TRUE(Reach(*sampler, 500).has_value());
  }
}

TEST(Ends, BeforeTheFirstStepAreErrors) {
  const TextIndex index({6});
  for (const Batch batch : {Batch::kSamples, Batch::kChunks}) {
    const TempFolder folder;
    Job job = MakeJob(folder, batch, {1}, {1});
    job.batch.chunk.length *= 100;
    const absl::Status refused = Make(job, index)->NumSteps().status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("6 samples"));
  }
}

TEST(Ends, AreNamedByWhatIsBehindThem) {
  const TextIndex index({70});
  for (const Batch batch : kBatches) {
    const TempFolder folder;
    const Job job = MakeJob(folder, batch, {1}, {1});
    const auto sampler = Make(job, index);
    const uint64_t steps = **sampler->NumSteps();
    const absl::Status past = sampler->Samples(steps).status();
    EXPECT_TRUE(absl::IsOutOfRange(past)) << past;
    EXPECT_THAT(std::string(past.message()), HasSubstr(absl::StrCat("the stream has ", steps, " steps")));
  }
}

TEST(Ends, MayNotBeFollowedByAChange) {
  const TextIndex index({10, 10});
  const TempFolder folder;
  Job job = MakeJob(folder, Batch::kSamples, {1, 1}, {1, 0});
  job.datasets[1].changes = {{.from_draw = 30, .weight = 1}};
  const absl::Status refused = Draws::Make(job, index).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at draw 10, and weights change at draw 30"));
  job.datasets[1].changes = {{.from_draw = 8, .weight = 1}};
  EXPECT_EQ(Draws::Make(job, index)->end(), 20u);
}

}  // namespace
}  // namespace evenkeel::dataset
