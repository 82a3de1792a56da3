// SeamlessM4T's extractor, which is w2v-BERT's: features, mask, rows after adapters, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kSeamless[] = "SeamlessM4TFeatureExtractor";

std::vector<int64_t> MaskOf(const Item& item) {
  std::vector<int64_t> mask(item.fields[1].size() / sizeof(int64_t));
  std::memcpy(mask.data(), item.fields[1].data(), item.fields[1].size());
  return mask;
}

TEST(SeamlessM4t, FeaturesAreTheExtractors) {
  const Item item = EncodedVoice(EncoderSpec(kSeamless));
  EXPECT_LE(WorstDifference(item, "voice-seamless-m4t"), 1e-6);
  EXPECT_EQ(item.lengths, (ItemLengths{27, 27, 27})) << "54 frames, two in a row";
  EXPECT_EQ(MaskOf(item), std::vector<int64_t>(27, 1));
}

TEST(SeamlessM4t, SamplesThatAreNotFiniteAreReported) {
  EXPECT_THAT(std::string(EncodedInfinity(EncoderSpec(kSeamless)).status.message()), HasSubstr("infinite"));
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(SeamlessM4t, HasTheBitsOfThisStreamVersion) {
  EXPECT_EQ(DigestOfFeatures(EncodedVoice(EncoderSpec(kSeamless))), "feb25574c04bd6e8335f8641e91b929e");
}

TEST(SeamlessM4t, AnOddFrameIsFilledAndMasked) {
  const ProcessorSpec spec = EncoderSpec(kSeamless, {{"padding_value", 1}});
  auto processor = Processor::LoadMedia(spec, Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  Bytes bytes = Golden("audio/voice.wav");
  bytes.resize(44 + 2 * (400 + 160 * 2));  // three frames; the rest of the file is cut off
  absl::StatusOr<MediaFacts> facts = (*processor)->Probe(Medium::kAudio, "wav", bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  const Item item = MakeFrom(**processor, Medium::kAudio, "wav", bytes, *facts);
  ASSERT_TRUE(item.status.ok()) << item.status;
  ASSERT_EQ(item.lengths.input_rows, 2u);
  EXPECT_EQ(MaskOf(item), (std::vector<int64_t>{1, 0}));
  std::vector<float> values(item.fields[0].size() / sizeof(float));
  std::memcpy(values.data(), item.fields[0].data(), item.fields[0].size());
  EXPECT_EQ(std::vector<float>(values.end() - 80, values.end()), std::vector<float>(80, 1.0f));
}

// Counted by the models of transformers 5.23.
TEST(SeamlessM4t, RowsAreThoseOfTheModelsAdapter) {
  const auto rows = [](const nlohmann::json& model, uint64_t input_rows) {
    return EncoderLengths(EncoderSpec(kSeamless, {}, model), 400 + 160 * (2 * input_rows - 1))->output_rows;
  };
  const nlohmann::json seamless = {{"add_adapter", true}, {"adaptor_kernel_size", 8}, {"adaptor_stride", 8}};
  EXPECT_EQ(rows(seamless, 7), 1u);
  EXPECT_EQ(rows(seamless, 8), 2u);
  EXPECT_EQ(rows(seamless, 100), 13u);
  const nlohmann::json bert = {{"add_adapter", true}, {"adapter_kernel_size", 3}, {"adapter_stride", 2}};
  EXPECT_EQ(rows(bert, 7), 4u);
  EXPECT_EQ(rows(bert, 8), 4u);
  nlohmann::json twice = bert;
  twice["num_adapter_layers"] = 2;
  EXPECT_EQ(rows(twice, 49), 13u);
  EXPECT_EQ(rows({{"add_adapter", false}, {"adapter_kernel_size", 3}}, 49), 49u);
}

TEST(SeamlessM4t, LengthsAreConsistent) {
  ExpectConsistentLengths(EncoderSpec(kSeamless, {}, {{"add_adapter", true}}));
  const ProcessorSpec spec = EncoderSpec(kSeamless);
  EXPECT_FALSE(EncoderLengths(spec, 559).ok()) << "one frame has no variance";
  EXPECT_EQ(EncoderLengths(spec, 560)->output_rows, 1u);
  EXPECT_EQ(EncoderLengths(spec, 280, 8000)->output_rows, 1u) << "of 8 kHz";
  EXPECT_FALSE(EncoderLengths(spec, std::numeric_limits<uint32_t>::max() + 1ull).ok());
}

TEST(SeamlessM4t, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const nlohmann::json& model = nullptr) {
    return EncoderRefusal(EncoderSpec(kSeamless, keys, model));
  };
  EXPECT_EQ(refusal({{"feature_size", 80}, {"num_mel_bins", 80}, {"stride", 2}, {"sampling_rate", 16000}}),
            "");
  EXPECT_THAT(refusal({{"stride", 4}}), HasSubstr("stride"));
  EXPECT_THAT(refusal({{"sampling_rate", 8000}}), HasSubstr("sampling_rate"));
  EXPECT_THAT(refusal({{"feature_size", 1}}), HasSubstr("feature_size"));
  EXPECT_THAT(refusal({{"hop", 3}}), HasSubstr("hop"));
  EXPECT_THAT(refusal({}, {{"add_adapter", true}, {"adapter_kernel_size", 9}, {"adapter_stride", 2}}),
              HasSubstr("add_adapter"));
}

}  // namespace
}  // namespace evenkeel::preprocess
