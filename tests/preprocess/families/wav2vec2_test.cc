// wav2vec 2.0's extractor: lengths by the model's convolutions, normalisation, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/speech_encoder_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec Wav2Vec2Spec(const nlohmann::json& keys = nullptr, const nlohmann::json& model = nullptr) {
  nlohmann::json config = {{"feature_extractor_type", "Wav2Vec2FeatureExtractor"}, {"feature_size", 1}};
  for (const auto& [key, value] : keys.items()) config[key] = value;
  std::map<std::string, nlohmann::json> files = {{"preprocessor_config.json", config}};
  if (!model.is_null()) files["config.json"] = model;
  ProcessorSpec spec = FolderSpec(files);
  spec.audio = spec.vision;
  spec.vision.clear();
  return spec;
}

TEST(Wav2Vec2, AFrameIsWhatTheConvolutionsMake) {
  const ProcessorSpec spec = Wav2Vec2Spec();
  EXPECT_EQ(EncoderLengths(spec, 16000)->output_rows, 49u);
  EXPECT_EQ(EncoderLengths(spec, 16000)->input_rows, 16000u);
  EXPECT_EQ(EncoderLengths(spec, 8000, 8000)->input_rows, 16000u) << "of 8 kHz";
  EXPECT_EQ(EncoderLengths(spec, 400)->output_rows, 1u);
  EXPECT_FALSE(EncoderLengths(spec, 399).ok());
  const nlohmann::json model = {{"conv_kernel", {4, 1, 1, 1, 1, 1, 1}},
                                {"conv_stride", {2, 1, 1, 1, 1, 1, 1}}};
  EXPECT_EQ(EncoderLengths(Wav2Vec2Spec({}, model), 10)->output_rows, 4u);
}

TEST(Wav2Vec2, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const nlohmann::json& model = nullptr) {
    const ProcessorSpec spec = Wav2Vec2Spec(keys, model);
    return std::string(LoadAudioFamily(spec.audio, spec, Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"do_normalize", false}, {"padding_value", 0.0}}), "");
  EXPECT_THAT(refusal({{"sampling_rate", 8000}}), HasSubstr("sampling_rate"));
  EXPECT_THAT(refusal({{"window", 3}}), HasSubstr("window"));
  EXPECT_THAT(refusal({}, {{"add_adapter", true}}), HasSubstr("add_adapter"));
  EXPECT_THAT(refusal({}, {{"conv_kernel", {10, 3}}}), HasSubstr("conv_kernel"));
}

}  // namespace
}  // namespace evenkeel::preprocess
