// CLAP's extractor: features at 48 kHz, how short clips are filled, why long ones and fusion are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kClap[] = "ClapFeatureExtractor";

ProcessorSpec ClapSpec(nlohmann::json keys = nlohmann::json::object(),
                       const nlohmann::json& model = nullptr) {
  if (!keys.contains("truncation")) keys["truncation"] = "rand_trunc";
  return EncoderSpec(kClap, keys, model);
}

TEST(Clap, FeaturesAreTheExtractors) {
  const Item item = EncodedVoice(ClapSpec(), 48000);
  EXPECT_LE(WorstDifference(item, "voice-clap"), 1e-5) << "decibels, whose f32 has steps of 4e-6 to 8e-6";
  EXPECT_EQ(item.lengths, (ItemLengths{1001, 1001, 64}));
  EXPECT_EQ(item.fields[0].size(), 1001u * 64 * sizeof(float));
}

TEST(Clap, SamplesThatAreNotFiniteAreReported) {
  EXPECT_THAT(std::string(EncodedInfinity(ClapSpec()).status.message()), HasSubstr("infinite"));
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(Clap, HasTheBitsOfThisStreamVersion) {
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(ClapSpec(), 48000)), "92a3181e50fd77dabac46c0f5192b124");
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(ClapSpec(), 16000)), "7319f51d0be25a570353151ff03a63b4")
      << "of 16 kHz";
}

TEST(Clap, PaddingsDifferAfterTheClip) {
  const Item repeat_pad = EncodedVoice(ClapSpec({{"padding", "repeatpad"}}), 48000);
  const Item repeat = EncodedVoice(ClapSpec({{"padding", "repeat"}}), 48000);
  const Item pad = EncodedVoice(ClapSpec({{"padding", "pad"}}), 48000);
  ASSERT_TRUE(repeat_pad.status.ok() && repeat.status.ok() && pad.status.ok());
  constexpr ptrdiff_t kFrame = 64 * sizeof(float), kOfClip = 17 * kFrame, kOfWhole = 980 * kFrame;
  const Bytes &a = repeat_pad.fields[0], &b = repeat.fields[0], &c = pad.fields[0];
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + kOfClip, c.begin()))
      << "9000 samples are more than 17 frames";
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + kOfWhole, c.begin()));
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + kOfWhole, b.begin())) << "53 whole repetitions";
  EXPECT_NE(a, b);
}

TEST(Clap, AClipThatWouldBeCutAtRandomIsRefused) {
  const ProcessorSpec spec = ClapSpec();
  ExpectConsistentLengths(spec);
  EXPECT_TRUE(EncoderLengths(spec, 480000, 48000).ok());
  EXPECT_EQ(EncoderLengths(spec, 160000)->input_rows, 1001u) << "of 16 kHz";
  EXPECT_THAT(std::string(EncoderLengths(spec, 480001, 48000).status().message()), HasSubstr("at random"));
  EXPECT_TRUE(EncoderLengths(ClapSpec({{"max_length_s", 11}}), 480001, 48000).ok());
}

TEST(Clap, RowsAreTheLastPositionsOfTheEncoder) {
  const auto rows = [](const nlohmann::json& audio) {
    return EncoderLengths(ClapSpec(nlohmann::json::object(), {{"audio_config", audio}}), 480000, 48000)
        ->output_rows;
  };
  EXPECT_EQ(rows({{"spec_size", 256}, {"patch_stride", {4, 4}}, {"depths", {2, 2, 6, 2}}, {"dropout", 0.1}}),
            64u);
  EXPECT_EQ(rows({{"spec_size", 512}, {"depths", {2, 2, 12, 2}}}), 256u);
}

TEST(Clap, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const nlohmann::json& model = nullptr) {
    return EncoderRefusal(ClapSpec(keys, model));
  };
  EXPECT_EQ(refusal({{"feature_size", 64}, {"frequency_max", 14000}, {"top_db", nullptr}, {"n_fft", 1024}}),
            "");
  EXPECT_THAT(refusal({{"truncation", "fusion"}}), HasSubstr("rand_trunc"));
  EXPECT_THAT(EncoderRefusal(EncoderSpec(kClap)), HasSubstr("rand_trunc")) << "the class's default is fusion";
  EXPECT_THAT(refusal({{"padding", "longest"}}), HasSubstr("padding"));
  EXPECT_THAT(refusal({{"sampling_rate", 16000}}), HasSubstr("sampling_rate"));
  EXPECT_THAT(refusal({{"hop_length", 320}}), HasSubstr("hop_length"));
  EXPECT_THAT(refusal(nlohmann::json::object(), {{"audio_config", {{"depths", {2, 2}}}}}),
              HasSubstr("depths"));
  EXPECT_THAT(refusal(nlohmann::json::object(), {{"audio_config", {{"spec_size", 16}}}}),
              HasSubstr("spec_size"));
}

}  // namespace
}  // namespace evenkeel::preprocess
