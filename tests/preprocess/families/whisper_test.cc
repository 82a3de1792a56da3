#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/audio/log_mel.h"
#include "preprocess/families/qwen2_audio.h"
#include "preprocess/families/speech.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/items.h"

namespace evenkeel::preprocess {
namespace {

// As Python divides: towards minus infinity.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

TEST(Whisper, MaskCountsTheFramesBegunInThirtySeconds) {
  EXPECT_EQ(MaskedFrames(0, 480000), 0u);
  EXPECT_EQ(MaskedFrames(1, 480000), 1u);
  EXPECT_EQ(MaskedFrames(160, 480000), 1u);
  EXPECT_EQ(MaskedFrames(161, 480000), 2u);
  EXPECT_EQ(MaskedFrames(480000, 480000), 3000u);
  EXPECT_EQ(MaskedFrames(10000000, 480000), 3000u);
}

TEST(Whisper, Qwen2AudioTokensDivideDownwards) {
  for (int64_t frames = 0; frames <= 3000; ++frames) {
    int64_t tokens = FloorDivide(FloorDivide(frames - 1, 2) + 1 - 2, 2) + 1;
    ASSERT_EQ(Qwen2AudioTokens(frames), std::max<int64_t>(tokens, 0)) << frames;
  }
  EXPECT_EQ(Qwen2AudioTokens(3000), 750u);
  EXPECT_EQ(Qwen2AudioTokens(2), 0u);
  EXPECT_EQ(Qwen2AudioTokens(3), 1u);
}

TEST(Whisper, LengthsAreThoseOfTheModel) {
  auto qwen = Processor::LoadMedia(AudioSpec("qwen2-audio"), Limits{});
  auto whisper = Processor::LoadMedia(AudioSpec("whisper"), Limits{});
  ASSERT_TRUE(qwen.ok() && whisper.ok()) << qwen.status() << whisper.status();
  MediaFacts facts;
  facts.medium = Medium::kAudio;
  facts.sample_rate = 8000;
  facts.num_samples = 8000 * 10;
  EXPECT_EQ(*(*qwen)->Measure(facts), (ItemLengths{3000, 3000, 250}));
  EXPECT_EQ(*(*whisper)->Measure(facts), (ItemLengths{3000, 3000, 1500}));
  facts.num_samples = 8000 * 100;
  EXPECT_EQ(*(*qwen)->Measure(facts), (ItemLengths{3000, 3000, 750}));
  facts.num_samples = 100;
  EXPECT_TRUE(absl::IsInvalidArgument((*qwen)->Measure(facts).status()));
  EXPECT_EQ((*qwen)->fields(Medium::kAudio)[0].num_bytes(ItemLengths{3000, 3000, 1}), 128u * 3000 * 4);
  EXPECT_EQ((*whisper)->fields(Medium::kAudio)[0].num_bytes(ItemLengths{3000, 3000, 1}), 80u * 3000 * 4);
  EXPECT_TRUE((*qwen)->fields(Medium::kImage).empty());
  EXPECT_TRUE(absl::IsInvalidArgument((*qwen)->Measure(MediaFacts{}).status())) << "it has no images";
}

TEST(Whisper, FeaturesAndMaskArePlacedInTheirFields) {
  Item item = Make(AudioSpec("qwen2-audio"), Medium::kAudio, "audio/noise.wav");
  ASSERT_TRUE(item.status.ok()) << item.status;
  std::vector<float> features(item.fields[0].size() / sizeof(float));
  std::memcpy(features.data(), item.fields[0].data(), item.fields[0].size());
  std::vector<float> expected = GoldenFloats("audio/noise-128.f32");
  for (uint32_t m = 0; m < 128; ++m) {
    for (uint32_t i = 0; i < 64; ++i) ASSERT_NEAR(features[m * 3000 + i], expected[m * 65 + i], 1e-6);
  }
  std::vector<int64_t> mask(3000);
  ASSERT_EQ(item.fields[1].size(), mask.size() * sizeof(int64_t));
  std::memcpy(mask.data(), item.fields[1].data(), item.fields[1].size());
  for (uint32_t i = 0; i < 3000; ++i) ASSERT_EQ(mask[i], i < 57 ? 1 : 0);  // 9001 samples
}

}  // namespace
}  // namespace evenkeel::preprocess
