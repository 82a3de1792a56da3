// Phi-4-multimodal's extractor: features, placeholders, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kPhi4Extractor[] = "Phi4MultimodalFeatureExtractor";

TEST(Phi4Speech, FeaturesAreTheExtractors) {
  const Item item = EncodedVoice(EncoderSpec(kPhi4Extractor));
  EXPECT_LE(WorstDifference(item, "voice-phi4"), 4e-6) << "logarithms of up to 31, in f32";
  EXPECT_EQ(item.lengths, (ItemLengths{54, 54, 7}));
  EXPECT_EQ(item.fields[0].size(), 54u * 80 * sizeof(float));
  int64_t tokens = 0;
  ASSERT_EQ(item.fields[1].size(), sizeof(tokens));
  std::memcpy(&tokens, item.fields[1].data(), sizeof(tokens));
  EXPECT_EQ(tokens, 7);
}

TEST(Phi4Speech, SamplesThatAreNotFiniteAreReported) {
  EXPECT_THAT(std::string(EncodedInfinity(EncoderSpec(kPhi4Extractor)).status.message()),
              HasSubstr("infinite"));
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(Phi4Speech, HasTheBitsOfThisStreamVersion) {
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(EncoderSpec(kPhi4Extractor))), "32636b33185fabe801f48077e1f5b88e");
}

TEST(Phi4Speech, TokensAreRoundedUpTwice) {
  const auto tokens = [](const nlohmann::json& keys, uint64_t samples) {
    return EncoderLengths(EncoderSpec(kPhi4Extractor, keys), samples)->output_rows;
  };
  EXPECT_EQ(tokens(nullptr, 400), 1u);
  EXPECT_EQ(tokens(nullptr, 400 + 7 * 160), 1u);
  EXPECT_EQ(tokens(nullptr, 400 + 8 * 160), 2u);
  EXPECT_EQ(tokens({{"audio_compression_rate", 4}, {"audio_downsample_rate", 3}}, 400 + 100 * 160), 9u);
  EXPECT_EQ(tokens({{"audio_feat_stride", 2}}, 400 + 8 * 160), 3u);
  EXPECT_FALSE(EncoderLengths(EncoderSpec(kPhi4Extractor), 399).ok()) << "no frame";
  const ProcessorSpec spec = EncoderSpec(kPhi4Extractor);
  auto family = LoadAudioFamily(spec.audio, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  Dice dice(5);
  for (int i = 0; i < 300; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kAudio, dice));
  EXPECT_TRUE((*family)->Measure((*family)->DummyFacts()).ok());
}

TEST(Phi4Speech, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return EncoderRefusal(EncoderSpec(kPhi4Extractor, keys));
  };
  EXPECT_EQ(refusal({{"image_processor_type", "Phi4MultimodalImageProcessor"}, {"dynamic_hd", 36}}), "");
  EXPECT_EQ(refusal({{"mel_max_frequency", 7600.5}}), "");
  EXPECT_THAT(refusal({{"mel_max_frequency", 9000}}), HasSubstr("mel_max_frequency"));
  EXPECT_THAT(refusal({{"preemphasis", 0.9}}), HasSubstr("preemphasis"));
  EXPECT_THAT(refusal({{"win_length", 320}}), HasSubstr("win_length"));
  EXPECT_THAT(refusal({{"audio_compression_rate", 0}}), HasSubstr("audio_compression_rate"));
  EXPECT_THAT(refusal({{"sampling_rate", 8000}}), HasSubstr("sampling_rate"));
}

}  // namespace
}  // namespace evenkeel::preprocess
