// Parakeet's extractor: features, rows after the encoder's convolutions, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kParakeet[] = "ParakeetFeatureExtractor";

TEST(Parakeet, FeaturesAreTheExtractors) {
  const Item item = EncodedVoice(EncoderSpec(kParakeet));
  EXPECT_LE(WorstDifference(item, "voice-parakeet"), 1e-3) << "the extractor computes in f32";
  EXPECT_EQ(item.lengths, (ItemLengths{56, 56, 7}));
  EXPECT_EQ(item.fields[0].size(), 56u * 80 * sizeof(float));
}

TEST(Parakeet, SamplesThatAreNotFiniteAreReported) {
  EXPECT_THAT(std::string(EncodedInfinity(EncoderSpec(kParakeet)).status.message()), HasSubstr("infinite"));
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(Parakeet, HasTheBitsOfThisStreamVersion) {
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(EncoderSpec(kParakeet))), "87a0188327a683944191f33c76c68e61");
}

// Counted by the model of transformers 5.23.
TEST(Parakeet, RowsAreThoseOfTheConvolutions) {
  const auto rows = [](const nlohmann::json& model, uint64_t frames) {
    return EncoderLengths(EncoderSpec(kParakeet, {}, model), 160 * frames)->output_rows;
  };
  EXPECT_EQ(rows(nullptr, 8), 1u);
  EXPECT_EQ(rows(nullptr, 9), 2u);
  EXPECT_EQ(rows(nullptr, 4375), 547u);
  EXPECT_EQ(rows({{"encoder_config", {{"subsampling_factor", 4}, {"hidden_size", 8}}}}, 100), 25u);
  EXPECT_EQ(rows({{"subsampling_factor", 4}}, 100), 25u) << "the encoder's own file";
  ExpectConsistentLengths(EncoderSpec(kParakeet));
  EXPECT_FALSE(EncoderLengths(EncoderSpec(kParakeet), 319).ok()) << "one frame has no variance";
}

TEST(Parakeet, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const nlohmann::json& model = nullptr) {
    return EncoderRefusal(EncoderSpec(kParakeet, keys, model));
  };
  EXPECT_EQ(refusal({{"feature_size", 128}, {"hop_length", 160}, {"n_fft", 512}, {"preemphasis", 0.97}}), "");
  EXPECT_THAT(refusal({{"preemphasis", 0.9}}), HasSubstr("preemphasis"));
  EXPECT_THAT(refusal({{"preemphasis", nullptr}}), HasSubstr("preemphasis"));
  EXPECT_THAT(refusal({{"win_length", 320}}), HasSubstr("win_length"));
  EXPECT_THAT(refusal({{"sampling_rate", 8000}}), HasSubstr("sampling_rate"));
  EXPECT_THAT(refusal({}, {{"encoder_config", {{"subsampling_conv_kernel_size", 4}}}}),
              HasSubstr("subsampling_conv_kernel_size"));
  EXPECT_THAT(refusal({}, {{"encoder_config", 4}}), HasSubstr("encoder_config"));
}

}  // namespace
}  // namespace evenkeel::preprocess
