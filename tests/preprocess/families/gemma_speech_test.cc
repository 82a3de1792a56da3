// The extractors of Gemma 3n and Gemma 4: features, masks, placeholders, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kGemma3nSpeech[] = "Gemma3nAudioFeatureExtractor";
constexpr char kGemma4Speech[] = "Gemma4AudioFeatureExtractor";

// With a processor's own file.
ProcessorSpec GemmaSpec(const std::string& extractor, const nlohmann::json& outer,
                        const nlohmann::json& model = nullptr) {
  std::map<std::string, nlohmann::json> files = {{"processor_config.json", outer}};
  if (!model.is_null()) files["config.json"] = model;
  ProcessorSpec spec = ConfiguredSpec({{"feature_extractor_type", extractor}}, nullptr, files);
  spec.audio = spec.vision;
  spec.vision.clear();
  return spec;
}

void ExpectFrames(const Item& item, int64_t expected) {
  int64_t frames = 0;
  ASSERT_EQ(item.fields.size(), 2u);
  ASSERT_EQ(item.fields[1].size(), sizeof(frames));
  std::memcpy(&frames, item.fields[1].data(), sizeof(frames));
  EXPECT_EQ(frames, expected);
}

TEST(GemmaSpeech, FeaturesAreTheExtractors) {
  const Item old = EncodedVoice(EncoderSpec(kGemma3nSpeech));
  EXPECT_LE(WorstDifference(old, "voice-gemma3n"), 1e-6);
  EXPECT_EQ(old.lengths, (ItemLengths{54, 54, 188}));
  ExpectFrames(old, 54);
  const Item item = EncodedVoice(EncoderSpec(kGemma4Speech));
  EXPECT_LE(WorstDifference(item, "voice-gemma4"), 1e-6);
  EXPECT_EQ(item.lengths, (ItemLengths{56, 56, 14}));
  ExpectFrames(item, 56);
}

TEST(GemmaSpeech, SamplesThatAreNotFiniteAreReported) {
  for (const char* extractor : {kGemma3nSpeech, kGemma4Speech}) {
    EXPECT_THAT(std::string(EncodedInfinity(EncoderSpec(extractor)).status.message()), HasSubstr("infinite"));
  }
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(GemmaSpeech, HasTheBitsOfThisStreamVersion) {
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(EncoderSpec(kGemma3nSpeech))), "36b1b9920fbfcf9948015acf6d065e4a");
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(EncoderSpec(kGemma4Speech))), "770f5109c72a6b788ce797e0ec97dde8");
}

TEST(GemmaSpeech, ClipsOfGemma3nAreCutAndHaveAllTokens) {
  const auto lengths = [](uint64_t samples) { return *EncoderLengths(EncoderSpec(kGemma3nSpeech), samples); };
  EXPECT_EQ(lengths(513), (ItemLengths{1, 1, 188}));
  EXPECT_EQ(lengths(640 + 128), (ItemLengths{2, 2, 188}));
  EXPECT_EQ(lengths(640 + 129), (ItemLengths{3, 3, 188})) << "padded to 896 samples";
  EXPECT_EQ(lengths(480000), (ItemLengths{2997, 2997, 188}));
  EXPECT_EQ(lengths(1000000), lengths(480000));
  EXPECT_FALSE(EncoderLengths(EncoderSpec(kGemma3nSpeech), 512).ok()) << "no frame";
  EXPECT_EQ(EncoderLengths(GemmaSpec(kGemma3nSpeech, {{"audio_seq_length", 9}}), 513)->output_rows, 9u);
}

TEST(GemmaSpeech, TokensOfGemma4AreThoseOfWholeFrames) {
  const auto lengths = [](uint64_t samples) { return *EncoderLengths(EncoderSpec(kGemma4Speech), samples); };
  EXPECT_EQ(lengths(161), (ItemLengths{1, 1, 1}));
  EXPECT_EQ(lengths(800), (ItemLengths{4, 4, 1})) << "a call has one more, which its mask leaves out";
  EXPECT_EQ(lengths(801), (ItemLengths{5, 5, 2}));
  EXPECT_EQ(lengths(480000), (ItemLengths{2999, 2999, 750}));
  EXPECT_EQ(lengths(1000000), lengths(480000));
  EXPECT_FALSE(EncoderLengths(EncoderSpec(kGemma4Speech), 160).ok()) << "no whole frame";
}

TEST(GemmaSpeech, LengthsAreConsistent) {
  for (const char* extractor : {kGemma3nSpeech, kGemma4Speech}) {
    const ProcessorSpec spec = EncoderSpec(extractor);
    auto family = LoadAudioFamily(spec.audio, spec, Limits{});
    ASSERT_TRUE(family.ok()) << family.status();
    Dice dice(7);
    for (int i = 0; i < 300; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kAudio, dice));
    EXPECT_TRUE((*family)->Measure((*family)->DummyFacts()).ok());
  }
}

TEST(GemmaSpeech, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return EncoderRefusal(EncoderSpec(kGemma3nSpeech, keys));
  };
  const std::vector<double> twos(128, 2);
  EXPECT_EQ(refusal({{"frame_length", 512}, {"hop_length", 160}, {"fft_length", 1024}}), "");
  EXPECT_EQ(refusal({{"image_processor_type", "SiglipImageProcessor"}, {"image_seq_length", 256}}), "");
  EXPECT_EQ(refusal({{"per_bin_mean", twos}, {"per_bin_stddev", {{twos}}}}), "");
  EXPECT_THAT(refusal({{"per_bin_mean", {1, 2}}}), HasSubstr("per_bin_mean"));
  EXPECT_THAT(refusal({{"per_bin_stddev", std::vector<double>(128)}}),
              HasSubstr("per_bin_stddev: has a zero"));
  EXPECT_THAT(refusal({{"dither", 0.1}}), HasSubstr("dither"));
  EXPECT_THAT(refusal({{"mel_floor", 0}}), HasSubstr("mel_floor"));
  EXPECT_THAT(refusal({{"preemphasis", nullptr}}), HasSubstr("preemphasis"));
  EXPECT_THAT(refusal({{"preemphasis", 1.5}}), HasSubstr("preemphasis"));
  EXPECT_THAT(refusal({{"frame_length_ms", 40}}),
              HasSubstr("frame_length_ms: is 40; implemented are 4 to 512"));
  EXPECT_THAT(refusal({{"hop_length_ms", 0}}), HasSubstr("hop_length_ms"));
  EXPECT_THAT(refusal({{"max_frequency", 100}}), HasSubstr("max_frequency"));
  EXPECT_THAT(refusal({{"sampling_rate", 8000}}), HasSubstr("sampling_rate"));
  EXPECT_THAT(refusal({{"processor_class", "Gemma4Processor"}}), HasSubstr("only Gemma3nProcessor"));
  EXPECT_THAT(refusal({{"do_denoise", true}}), HasSubstr("do_denoise: unknown key"));
  EXPECT_THAT(EncoderRefusal(GemmaSpec(kGemma3nSpeech, {{"audio_seq_length", 0}})),
              HasSubstr("audio_seq_length"));
}

TEST(GemmaSpeech, TokensMustBeThoseOfTheModel) {
  const auto refusal = [](uint32_t of_processor, const nlohmann::json& model) {
    return EncoderRefusal(GemmaSpec(kGemma3nSpeech, {{"audio_seq_length", of_processor}}, model));
  };
  EXPECT_EQ(refusal(9, {{"model_type", "gemma3n"}}), "");
  EXPECT_EQ(refusal(9, {{"audio_soft_tokens_per_image", 9}}), "");
  EXPECT_THAT(refusal(9, {{"audio_soft_tokens_per_image", 188}}),
              HasSubstr("audio_seq_length: is 9, but the model's config.json has 188"));
}

}  // namespace
}  // namespace evenkeel::preprocess
