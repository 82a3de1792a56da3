#include "preprocess/audio/log_mel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/digest.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

// Mono 16-bit WAV with the 44-byte header that the golden generator writes.
std::vector<float> Clip(const std::string& name) {
  Bytes bytes = Golden("audio/" + name + ".wav");
  std::vector<float> samples((bytes.size() - 44) / 2);
  for (size_t i = 0; i < samples.size(); ++i) {
    int16_t value;
    std::memcpy(&value, &bytes[44 + 2 * i], sizeof(value));
    samples[i] = value / 32768.0f;
  }
  return samples;
}

TEST(LogMel, IsWithinAMillionthOfTheExtractorsNumpyPath) {
  for (std::string name : {"voice", "noise", "silence"}) {
    for (uint32_t mels : {80u, 128u}) {
      SCOPED_TRACE(name + std::to_string(mels));
      std::vector<float> expected = GoldenFloats("audio/" + name + "-" + std::to_string(mels) + ".f32");
      ASSERT_EQ(expected.size(), size_t{mels} * 65);
      std::vector<float> features(size_t{mels} * LogMel::kFrames);
      ASSERT_TRUE(LogMel(mels).Compute(Clip(name), features));
      double worst = 0;
      for (uint32_t m = 0; m < mels; ++m) {
        for (uint32_t i = 0; i < 65; ++i) {
          uint32_t frame = i < 64 ? i : LogMel::kFrames - 1;
          worst =
              std::max(worst, std::abs(double{features[m * LogMel::kFrames + frame]} - expected[m * 65 + i]));
        }
      }
      EXPECT_LE(worst, 1e-6);
    }
  }
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(LogMel, HasTheBitsOfThisStreamVersion) {
  std::vector<float> features(size_t{128} * LogMel::kFrames);
  ASSERT_TRUE(LogMel(128).Compute(Clip("noise"), features));
  EXPECT_EQ(DigestOf(std::as_bytes(std::span(features))).Hex(), "aa8129a6ab5a17f879bdf738b4c765c2");
}

TEST(LogMel, FramesBeyondTheClipAreWhatSilenceGives) {
  std::vector<float> clip = Clip("voice");
  std::vector<float> padded = clip;
  padded.resize(LogMel::kSamples);
  LogMel log_mel(80);
  std::vector<float> a(size_t{80} * LogMel::kFrames), b(a.size());
  ASSERT_TRUE(log_mel.Compute(clip, a));
  ASSERT_TRUE(log_mel.Compute(padded, b));
  EXPECT_EQ(a, b);
}

TEST(LogMel, SamplesBeyondThirtySecondsAreNotUsed) {
  std::vector<float> clip(LogMel::kSamples);
  Dice dice(1);
  for (float& sample : clip) sample = dice.Roll(1000) / 1000.0f - 0.5f;
  LogMel log_mel(80);
  std::vector<float> a(size_t{80} * LogMel::kFrames), b(a.size());
  ASSERT_TRUE(log_mel.Compute(clip, a));
  clip.push_back(0.9f);
  ASSERT_TRUE(log_mel.Compute(clip, b));
  EXPECT_EQ(a, b);
}

TEST(LogMel, EveryKernelGivesTheSameBits) {
  const std::vector<MelKernel> kernels = MelKernels();
  std::vector<float> clip = Clip("noise");
  for (float scale : {1.0f, 1e-7f, 3e5f}) {
    std::vector<float> scaled = clip;
    for (float& sample : scaled) sample *= scale;
    std::vector<float> expected(size_t{128} * LogMel::kFrames), features(expected.size());
    ASSERT_TRUE(LogMel(128, kernels.back()).Compute(scaled, expected));
    for (const MelKernel& kernel : kernels) {
      ASSERT_TRUE(LogMel(128, kernel).Compute(scaled, features));
      EXPECT_EQ(features, expected) << kernel.name;
    }
  }
}

TEST(LogMel, ClipsOfEveryLengthHaveTheFramesOfTheirPaddedTwin) {
  std::vector<float> clip(LogMel::kSamples);
  Dice dice(2);
  for (float& sample : clip) sample = dice.Roll(65536) / 32768.0f - 1;
  LogMel log_mel(80);
  std::vector<float> a(size_t{80} * LogMel::kFrames), b(a.size());
  for (size_t length : {size_t{0}, size_t{1}, size_t{199}, size_t{1480}, size_t{479600}, size_t{479999}}) {
    std::vector<float> padded(clip.begin(), clip.begin() + length);
    padded.resize(LogMel::kSamples);
    ASSERT_TRUE(log_mel.Compute(std::span(clip).first(length), a));
    ASSERT_TRUE(log_mel.Compute(padded, b));
    EXPECT_EQ(a, b) << length;
  }
}

TEST(LogMel, SamplesThatAreNotFiniteAreReported) {
  std::vector<float> features(size_t{80} * LogMel::kFrames);
  std::vector<float> clip(1000, 0.1f);
  clip[500] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(LogMel(80).Compute(clip, features));
  clip[500] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(LogMel(80).Compute(clip, features));
}

}  // namespace
}  // namespace evenkeel::preprocess
