// Granite Speech's extractor: features, placeholders, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kGranite[] = "GraniteSpeechFeatureExtractor";

TEST(GraniteSpeech, FeaturesAreTheExtractors) {
  const Item item = EncodedVoice(EncoderSpec(kGranite));
  EXPECT_LE(WorstDifference(item, "voice-granite"), 1e-3) << "the extractor computes in f32";
  EXPECT_EQ(item.lengths, (ItemLengths{28, 28, 6})) << "57 frames, of which the last has no row";
  EXPECT_EQ(item.fields[0].size(), 28u * 160 * sizeof(float));
  int64_t tokens = 0;
  ASSERT_EQ(item.fields[1].size(), sizeof(tokens));
  std::memcpy(&tokens, item.fields[1].data(), sizeof(tokens));
  EXPECT_EQ(tokens, 6);
}

TEST(GraniteSpeech, SamplesThatAreNotFiniteAreReported) {
  EXPECT_THAT(std::string(EncodedInfinity(EncoderSpec(kGranite)).status.message()), HasSubstr("infinite"));
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(GraniteSpeech, HasTheBitsOfThisStreamVersion) {
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(EncoderSpec(kGranite))), "d956822145c6dc186c136cadd2d7b82a");
}

TEST(GraniteSpeech, TokensAreThoseOfWholeWindows) {
  const auto tokens = [](const nlohmann::json& keys, uint64_t samples) {
    return EncoderLengths(EncoderSpec(kGranite, keys), samples)->output_rows;
  };
  EXPECT_EQ(tokens(nullptr, 257), 3u);
  EXPECT_EQ(tokens(nullptr, 30 * 160 - 1), 3u);
  EXPECT_EQ(tokens(nullptr, 31 * 160 - 1), 3u) << "15 rows of 31 frames";
  EXPECT_EQ(tokens(nullptr, 31 * 160), 6u);
  EXPECT_EQ(tokens({{"projector_window_size", 11}, {"projector_downsample_rate", 4}}, 31 * 160), 4u);
  EXPECT_FALSE(EncoderLengths(EncoderSpec(kGranite), 256).ok()) << "cannot be reflected";
  const ProcessorSpec spec = EncoderSpec(kGranite);
  auto family = LoadAudioFamily(spec.audio, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  Dice dice(6);
  for (int i = 0; i < 300; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kAudio, dice));
  EXPECT_TRUE((*family)->Measure((*family)->DummyFacts()).ok());
}

TEST(GraniteSpeech, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) { return EncoderRefusal(EncoderSpec(kGranite, keys)); };
  EXPECT_EQ(refusal({{"melspec_kwargs", {{"n_mels", 80}}}, {"n_mels", 128}}), "");
  EXPECT_THAT(refusal({{"hop_length", 320}}), HasSubstr("hop_length"));
  EXPECT_THAT(refusal({{"n_mels", nullptr}}), HasSubstr("n_mels"));
  EXPECT_THAT(refusal({{"projector_window_size", 4}}), HasSubstr("clips have no tokens"));
  EXPECT_THAT(refusal({{"sampling_rate", 8000}}), HasSubstr("sampling_rate"));
  EXPECT_THAT(refusal({{"encoder_window", 3}}), HasSubstr("encoder_window: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
