// Chunks of concatenated texts: every token of every epoch once, in the order of the draws, whatever step is asked for first.
#include "dataset/order/chunk_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "dataset/order/draw_order.h"
#include "dataset/order/sampler.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::HasSubstr;

// Texts of these lengths, in one dataset.
class TextIndex : public Index {
 public:
  explicit TextIndex(std::vector<uint32_t> lengths) : lengths_(std::move(lengths)) {}
  Digest digest() const override { return DigestOf(std::string_view("texts")); }
  uint64_t num_samples(uint32_t) const override { return lengths_.size(); }
  absl::StatusOr<SampleLengths> lengths(uint32_t, uint64_t index) const override {
    SampleLengths out{.llm_length = lengths_[index], .loss_tokens = lengths_[index] - 1};
    if (index == chat) out.loss_tokens = 0;
    if (index == photo) out.items.resize(1);
    return out;
  }
  absl::StatusOr<SamplePlaces> places(uint32_t, uint64_t index) const override {
    return SamplePlaces{.key = absl::StrCat(index), .shard_path = "/data/a.txt"};
  }

  uint64_t chat = ~uint64_t{0}, photo = ~uint64_t{0};

 private:
  const std::vector<uint32_t> lengths_;
};

std::vector<uint32_t> ManyLengths(size_t count) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(static_cast<uint32_t>(i % 7 == 0 ? 1 : 1 + i * 7919 % 211));
  return out;
}

Job MakeJob(const TempFolder& folder, uint64_t length, uint32_t count, uint64_t window_samples) {
  Job job;
  job.path = "job.yaml";
  job.seed = 5;
  job.index = folder.path();
  job.datasets = {{.name = "texts"}};
  job.batch = {.window_samples = window_samples, .chunk = {.length = length, .count = count}};
  return job;
}

StepSamples Reach(const Sampler& sampler, uint64_t step) {
  for (;;) {
    absl::StatusOr<StepSamples> samples = sampler.Samples(step);
    if (samples.ok()) return *std::move(samples);
    if (KindOf(samples.status()) != FailureKind::kNotYet) {
      ADD_FAILURE() << samples.status();
      return {};
    }
    EXPECT_TRUE(sampler.Extend(step).ok());
  }
}

using Token = std::tuple<uint64_t, uint64_t, uint64_t>;  // epoch, sample, token in it

void AppendTokens(const StepSamples& step, std::vector<Token>& out) {
  ASSERT_EQ(step.pieces.size(), step.refs.size());
  ASSERT_EQ(step.lengths.size(), step.refs.size());
  for (size_t i = 0; i < step.refs.size(); ++i) {
    EXPECT_EQ(step.lengths[i].loss_tokens + 1, step.lengths[i].llm_length);
    for (uint32_t t = 0; t < step.lengths[i].llm_length; ++t)
      out.emplace_back(step.refs[i].epoch, step.refs[i].index, step.pieces[i].begin + t);
  }
}

TEST(Chunks, AreTheTextsInTheOrderOfDrawsCutToOneLength) {
  const std::vector<uint32_t> lengths = ManyLengths(300);
  const TextIndex index(lengths);
  for (const auto& [length, count] : {std::pair<uint64_t, uint32_t>{64, 4}, {1, 3}, {1000, 2}, {100000, 1}}) {
    const TempFolder folder;
    const Job job = MakeJob(folder, length, count, 32);
    const auto sampler = *Sampler::Make(job, index);
    const auto draws = *DrawOrder::Make(job, index);
    const uint64_t steps = std::max<uint64_t>(3, 80000 / (length * count));
    std::vector<Token> delivered, expected;
    for (uint64_t s = 0; s < steps; ++s) {
      const StepSamples step = Reach(*sampler, s);
      ASSERT_EQ(step.bin_begin.size(), count + 1u);
      EXPECT_EQ(step.bin_begin.back(), step.refs.size());
      for (uint32_t b = 0; b < count; ++b) {
        uint64_t tokens = 0;
        for (uint32_t i = step.bin_begin[b]; i < step.bin_begin[b + 1]; ++i) {
          tokens += step.lengths[i].llm_length;
          EXPECT_EQ(step.pieces[i].text_tokens, lengths[step.refs[i].index]);
        }
        ASSERT_EQ(tokens, length);
      }
      AppendTokens(step, delivered);
    }
    for (uint64_t draw = 0; expected.size() < delivered.size(); ++draw) {
      const SampleRef ref = *draws->At(draw);
      for (uint32_t t = 0; t < lengths[ref.index]; ++t) expected.emplace_back(ref.epoch, ref.index, t);
    }
    expected.resize(delivered.size());
    EXPECT_TRUE(delivered == expected) << length;
    EXPECT_GE(std::get<0>(delivered.back()), 1u);  // an epoch's tail went on into the next
  }
}

TEST(Chunks, AreTheSameForAnyWindowAndAnyStepThatIsAskedForFirst) {
  const TextIndex index(ManyLengths(300));
  std::vector<std::vector<Token>> seen;
  for (const uint64_t window : {uint64_t{1}, uint64_t{7}, uint64_t{4096}}) {
    const TempFolder folder;
    const Job job = MakeJob(folder, 50, 6, window);
    std::vector<Token>& tokens = seen.emplace_back();
    for (const uint64_t step : {uint64_t{400}, uint64_t{3}, uint64_t{401}}) {
      // A new sampler, which finds the table of the one before it.
      AppendTokens(Reach(**Sampler::Make(job, index), step), tokens);
    }
    EXPECT_EQ(tokens.size(), 900u);
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(Chunks, OfAFarStepTellHowManyStepsAreKnown) {
  const TempFolder folder;
  const TextIndex index(ManyLengths(300));
  const Job job = MakeJob(folder, 50, 6, 64);
  const auto sampler = *Sampler::Make(job, index);
  const absl::Status far = sampler->Samples(1000000).status();
  EXPECT_EQ(KindOf(far), FailureKind::kNotYet);
  EXPECT_THAT(std::string(far.message()), HasSubstr("steps of about 1000000 ("));
  EXPECT_TRUE(absl::IsOutOfRange(sampler->Samples(uint64_t{1} << 50).status()));
  EXPECT_TRUE(absl::IsOutOfRange(sampler->Samples(~uint64_t{0}).status()));
}

TEST(Chunks, AreOfTextsAlone) {
  for (const bool has_media : {true, false}) {
    const TempFolder folder;
    TextIndex index(ManyLengths(30));
    (has_media ? index.photo : index.chat) = 12;
    const Job job = MakeJob(folder, 50, 6, 64);
    const auto sampler = *Sampler::Make(job, index);
    const absl::Status refused = sampler->Samples(0).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("texts/a.txt/12: "));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(has_media ? "it has 1 media" : "0 of its"));
  }
}

TEST(Chunks, NeedWindowsWhoseTokensCanBeCounted) {
  const TempFolder folder;
  const TextIndex index(std::vector<uint32_t>(8, 1u << 30));
  EXPECT_THAT(std::string((*Sampler::Make(MakeJob(folder, 50, 6, 8), index))->Samples(0).status().message()),
              HasSubstr("lower batch.window_samples"));
  EXPECT_TRUE((*Sampler::Make(MakeJob(folder, 50, 6, 2), index))->Samples(0).ok());
}

}  // namespace
}  // namespace evenkeel::dataset
