// Voxtral, Audio Flamingo 3 and GLM-ASR: windows of 30 seconds. Qwen3-ASR: clips as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ItemLengths LengthsOf(const std::string& name, uint64_t samples) {
  MediaFacts facts;
  facts.medium = Medium::kAudio;
  facts.sample_rate = 16000;
  facts.num_samples = samples;
  absl::StatusOr<ItemLengths> lengths = LoadOrFail(AudioSpec(name))->Measure(facts);
  return lengths.ok() ? *lengths : ItemLengths{};
}

TEST(WindowedSpeech, AWindowBegunIsARow) {
  EXPECT_EQ(LengthsOf("voxtral", 1), (ItemLengths{3000, 1, 375}));
  EXPECT_EQ(LengthsOf("voxtral", 480000), (ItemLengths{3000, 1, 375}));
  EXPECT_EQ(LengthsOf("voxtral", 480001), (ItemLengths{6000, 2, 750}));
  EXPECT_EQ(LengthsOf("audioflamingo3", 480001), (ItemLengths{6000, 2, 750}));
  EXPECT_EQ(LengthsOf("audioflamingo3", 480000 * 20 + 1), (ItemLengths{60000, 20, 15000})) << "600 s at most";
  EXPECT_EQ(LengthsOf("glmasr", 480000), (ItemLengths{3000, 1, 375}));
  EXPECT_EQ(LengthsOf("glmasr", 480000 * 50), (ItemLengths{63000, 21, 7875})) << "21 windows in 655 s";
  EXPECT_EQ(LengthsOf("glmasr", 6 * 160), ItemLengths{}) << "no token";
}

TEST(WindowedSpeech, FieldsHaveARowForEveryWindow) {
  auto flamingo = LoadOrFail(AudioSpec("audioflamingo3"));
  const std::vector<FieldSpec>& fields = flamingo->fields(Medium::kAudio);
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].num_bytes({6000, 2, 750}), 2u * 128 * 3000 * 4);
  EXPECT_EQ(fields[1].name, "input_features_mask");
  EXPECT_EQ(fields[1].num_bytes({6000, 2, 750}), 2u * 3000 * 8);
  EXPECT_EQ(LoadOrFail(AudioSpec("voxtral"))->fields(Medium::kAudio).size(), 1u);
}

TEST(Qwen3Asr, ShortClipsAreFilledToHalfASecond) {
  EXPECT_EQ(LengthsOf("qwen3-asr", 1), LengthsOf("qwen3-asr", 8000));
  EXPECT_EQ(LengthsOf("qwen3-asr", 8000), (ItemLengths{50, 50, 7}));
  EXPECT_EQ(LengthsOf("qwen3-asr", 16000 * 30), (ItemLengths{3000, 3000, 390}));
  EXPECT_EQ(LengthsOf("qwen3-asr", 16000 * 60), (ItemLengths{6000, 6000, 780})) << "nothing is cut";
}

TEST(WindowedSpeech, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const std::string& name, const nlohmann::json& keys, const std::string& file) {
    ProcessorSpec spec = EditedSpec(name, keys, file);
    std::swap(spec.audio, spec.vision);
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  constexpr const char* kOuter = "processor_config.json";
  EXPECT_EQ(refusal("glmasr", {{"max_audio_len", 60}}, kOuter), "");
  EXPECT_THAT(refusal("glmasr", {{"max_audio_len", 20}}, kOuter), HasSubstr("less than one window"));
  EXPECT_THAT(refusal("audioflamingo3", {{"audio_token", "<audio>"}}, kOuter), HasSubstr("only \"<sound>\""));
  EXPECT_THAT(refusal("voxtral", {{"chunk_length", 20}, {"n_samples", 320000}, {"nb_max_frames", 2000}},
                      "preprocessor_config.json"),
              HasSubstr("only 30 is implemented for Voxtral"));
  EXPECT_THAT(refusal("qwen3-asr", {{"dither", 0.1}}, "preprocessor_config.json"), HasSubstr("dither"));
}

}  // namespace
}  // namespace evenkeel::preprocess
