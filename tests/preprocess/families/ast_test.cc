// The Audio Spectrogram Transformer's extractor: features, rows of the encoder, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kAst[] = "ASTFeatureExtractor";

TEST(Ast, FeaturesAreTheExtractors) {
  const Item item = EncodedVoice(EncoderSpec(kAst));
  EXPECT_LE(WorstDifference(item, "voice-ast"), 1e-6) << "54 frames and two that are filled";
  EXPECT_EQ(item.lengths, (ItemLengths{1214, 1024, 1214}));
  EXPECT_EQ(item.fields[0].size(), 1024u * 128 * sizeof(float));
}

TEST(Ast, SamplesThatAreNotFiniteAreReported) {
  EXPECT_THAT(std::string(EncodedInfinity(EncoderSpec(kAst)).status.message()), HasSubstr("infinite"));
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(Ast, HasTheBitsOfThisStreamVersion) {
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(EncoderSpec(kAst))), "e1aa383d26f769e14d6736b1607362a1");
}

TEST(Ast, ALongClipIsCut) {
  const nlohmann::json model = {{"patch_size", 10}};
  const Item cut = EncodedVoice(EncoderSpec(kAst, {{"max_length", 20}}, model));
  const Item whole = EncodedVoice(EncoderSpec(kAst));
  ASSERT_TRUE(cut.status.ok() && whole.status.ok()) << cut.status << whole.status;
  ASSERT_EQ(cut.fields[0].size(), 20u * 128 * sizeof(float));
  EXPECT_TRUE(std::equal(cut.fields[0].begin(), cut.fields[0].end(), whole.fields[0].begin()));
}

// Counted by the model of transformers 5.23.
TEST(Ast, RowsAreThePatchesAndTwoTokens) {
  EXPECT_EQ(EncoderLengths(EncoderSpec(kAst), 16000)->output_rows, 1214u);
  const ProcessorSpec other =
      EncoderSpec(kAst, {{"max_length", 300}, {"num_mel_bins", 64}}, {{"time_stride", 16}});
  EXPECT_EQ(*EncoderLengths(other, 16000), (ItemLengths{92, 300, 92}));
  ExpectConsistentLengths(other);
  EXPECT_FALSE(EncoderLengths(other, 399).ok());
}

TEST(Ast, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const nlohmann::json& model = nullptr) {
    return EncoderRefusal(EncoderSpec(kAst, keys, model));
  };
  EXPECT_EQ(refusal({{"feature_size", 1}, {"mean", -4.3}, {"std", 4.5}, {"do_normalize", false}}), "");
  EXPECT_THAT(refusal({{"std", 0}}), HasSubstr("std"));
  EXPECT_THAT(refusal({{"sampling_rate", 8000}}), HasSubstr("sampling_rate"));
  EXPECT_THAT(refusal({{"window", 3}, {"hop", 3}}), HasSubstr("hop"));
  EXPECT_THAT(refusal({{"max_length", 8}}), HasSubstr("patch_size"));
}

}  // namespace
}  // namespace evenkeel::preprocess
