// SmolVLM: frames with their times, numbers and durations in words.
#include "preprocess/families/smolvlm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

// As num2words 0.5.14 writes them.
TEST(SmolVlm, NumbersAreWrittenAsWords) {
  const std::pair<uint32_t, const char*> kNumbers[] = {
      {0, "zero"},
      {13, "thirteen"},
      {20, "twenty"},
      {21, "twenty-one"},
      {100, "one hundred"},
      {101, "one hundred and one"},
      {121, "one hundred and twenty-one"},
      {1000, "one thousand"},
      {1021, "one thousand and twenty-one"},
      {1100, "one thousand, one hundred"},
      {1105, "one thousand, one hundred and five"},
      {12345, "twelve thousand, three hundred and forty-five"},
      {100005, "one hundred thousand and five"},
      {2000001, "two million and one"},
      {1234567, "one million, two hundred and thirty-four thousand, five hundred and sixty-seven"},
      {1000000000, "one billion"}};
  for (const auto& [number, words] : kNumbers) EXPECT_EQ(NumberInWords(number), words);
}

TEST(SmolVlm, DurationsAreThoseOfPython) {
  EXPECT_EQ(DurationText(0), "0:00:00");
  EXPECT_EQ(DurationText(65), "0:01:05");
  EXPECT_EQ(DurationText(86399), "23:59:59");
  EXPECT_EQ(DurationText(86400), "1 day, 0:00:00");
  EXPECT_EQ(DurationText(180000), "2 days, 2:00:00");
}

// Idefics3's golden checkpoint as SmolVLM's, whose pictures have the same rules.
ProcessorSpec SmolVlmSpec(const nlohmann::json& keys) {
  std::ifstream golden(GoldenPath("processors/idefics3/preprocessor_config.json"));
  nlohmann::json file = nlohmann::json::parse(golden);
  file["image_processor_type"] = "SmolVLMImageProcessor";
  file["processor_class"] = "SmolVLMProcessor";
  for (const auto& [key, value] : keys.items()) file[key] = value;
  ProcessorSpec spec = FolderSpec({{"preprocessor_config.json", file},
                                   {"processor_config.json", {{"image_seq_len", 4}}},
                                   {"config.json", {{"vision_config", {{"patch_size", 14}}}}}});
  spec.resampler = "aten_u8";
  return spec;
}

MediaFacts SmolVlmVideo(uint32_t frames, uint32_t fps) {
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = 64, facts.height = 48, facts.num_frames = frames, facts.fps_num = fps, facts.fps_den = 1;
  return facts;
}

const nlohmann::json kTwice = {{"video_sampling", {{"fps", 2}, {"max_frames", 5}}}};

TEST(SmolVlm, AFrameIsATileAfterItsTime) {
  const ProcessorSpec spec = SmolVlmSpec(kTwice);
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  const MediaFacts facts = SmolVlmVideo(6 * 61, 6);  // 61 seconds
  EXPECT_EQ(*(*family)->Measure(facts), (ItemLengths{5 * 16, 5, 5 * 4}));
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  const MediumStyle style = (*family)->styles().back();
  std::string text;
  for (const PlaceholderRun& run : runs) {
    text += run.text;
    if (run.token.has_value()) text += style.tokens[*run.token];
    if (run.rows != 0) text += "*";
  }
  const std::string tile = "<fake_token_around_image><global-img>*<fake_token_around_image>";
  // A second is left out at each end, since 59 seconds are more than 2 * 5.
  EXPECT_EQ(text,
            "You are provided the following series of five frames from a 0:01:01 [H:MM:SS] video.\n"
            "\nFrame from 00:01:" +
                tile + "\nFrame from 00:15:" + tile + "\nFrame from 00:30:" + tile +
                "\nFrame from 00:45:" + tile + "\nFrame from 01:00:" + tile + "\n\n");
}

TEST(SmolVlm, FramesAreSampledByARateAndAMaximum) {
  auto frames_of = [](const ProcessorSpec& spec, uint32_t frames) {
    auto processor = LoadOrFail(spec);
    absl::StatusOr<ItemLengths> lengths = processor->Measure(SmolVlmVideo(frames, 6));
    return lengths.ok() ? lengths->input_rows : 0;
  };
  EXPECT_EQ(frames_of(SmolVlmSpec(kTwice), 9), 3u) << "1.5 seconds";
  EXPECT_EQ(frames_of(SmolVlmSpec(kTwice), 1), 1u);
  EXPECT_EQ(frames_of(SmolVlmSpec({{"fps", 60}, {"num_frames", 50}}), 9), 9u) << "each frame once";
  EXPECT_EQ(frames_of(SmolVlmSpec({}), 9), 9u) << "a file without both has all of them";
  ProcessorSpec spec = SmolVlmSpec({});
  spec.fps = 1;
  EXPECT_EQ(frames_of(spec, 9), 0u) << "a rate alone fails in transformers";
  spec.min_frames = spec.max_frames = 2;
  EXPECT_EQ(frames_of(spec, 60), 2u);
}

TEST(SmolVlm, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return std::string(Processor::LoadMedia(SmolVlmSpec(keys), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"do_sample_frames", false}}), "");
  EXPECT_THAT(refusal({{"video_sampling", {{"fps", 1}, {"speed", 2}}}}), HasSubstr("speed: unknown key"));
  EXPECT_THAT(refusal({{"video_sampling", {{"fps", -1}}}}), HasSubstr("fps: is not positive"));
  EXPECT_THAT(refusal({{"video_sampling", 3}}), HasSubstr("video_sampling: is 3, not an object"));
}

}  // namespace
}  // namespace evenkeel::preprocess
