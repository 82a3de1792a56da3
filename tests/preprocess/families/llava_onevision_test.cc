// LLaVA-OneVision: a sample's only picture in tiles, one of several as a padded square.
#include "preprocess/families/llava_onevision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(LlavaOneVision, PixelsAreThoseOfTransformers) { ExpectPixelsOf("llava-onevision"); }
TEST(LlavaOneVision, EveryWireFormHasTheSameValues) { ExpectWireFormsAgree("llava-onevision"); }
TEST(LlavaOneVision, TheModelGetsThePicturesSize) {
  ExpectImageSizes("llava-onevision", "pictures/wide.png", {41, 5});
}

TEST(LlavaOneVision, PlaceholdersAreAsManyAsTransformersWritesForEverySize) {
  auto processor = LoadOrFail(VisionSpec("llava-onevision"));
  for (const nlohmann::json& example : FamilyGolden("canvas", "llava_onevision")) {
    absl::StatusOr<ItemLengths> lengths = MeasureCanvas(*processor, example);
    EXPECT_EQ(lengths.ok() ? lengths->output_rows : 0, example[2]) << example;
  }
}

TEST(LlavaOneVision, APictureOfSeveralIsOneTileAndOneTokenMore) {
  auto processor = LoadOrFail(VisionSpec("llava-onevision"));
  MediaFacts facts;
  facts.width = 500, facts.height = 300;
  for (uint32_t of_sample : {0, 1}) {
    facts.pictures_in_sample = of_sample;
    EXPECT_GT(processor->Measure(facts)->input_rows, 1u);
  }
  facts.pictures_in_sample = 2;
  EXPECT_EQ(*processor->Measure(facts), (ItemLengths{16, 1, 17}));
}

TEST(LlavaOneVision, AFrameIsATileOfPooledTokens) {
  auto processor = LoadOrFail(VisionSpec("llava-onevision"));
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = 500, facts.height = 300, facts.num_frames = 9, facts.fps_num = 3, facts.fps_den = 1;
  EXPECT_EQ(*processor->Measure(facts), (ItemLengths{9 * 16, 9, 9 * 4 + 1}));
  ASSERT_EQ(processor->fields(Medium::kVideo).size(), 1u);
  EXPECT_EQ(processor->fields(Medium::kVideo)[0].trailing, (std::vector<uint64_t>{3, 56, 56}));
}

TEST(LlavaOneVision, OtherVideosAloneAreRefused) {
  const auto said = [](const nlohmann::json& keys) {
    auto processor = LoadOrFail(EditedSpec("llava-onevision", keys, "video_preprocessor_config.json"));
    MediaFacts facts;
    facts.width = 64, facts.height = 48, facts.num_frames = 9, facts.fps_num = 3, facts.fps_den = 1;
    EXPECT_TRUE(processor->Measure(facts).ok());
    facts.medium = Medium::kVideo;
    const absl::Status status = processor->Measure(facts).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(said({{"video_processor_type", "InternVLVideoProcessor"}}),
              HasSubstr("only LlavaOnevisionVideoProcessor is implemented"));
  EXPECT_THAT(said({{"size", {{"shortest_edge", 56}}}}), HasSubstr("frames of different sizes"));
  EXPECT_THAT(said({{"do_sample_frames", true}, {"num_frames", 4}, {"fps", 2}}),
              HasSubstr("num_frames: is given together with fps"));
}

TEST(LlavaOneVision, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const char* file) {
    return RefusalOf("llava-onevision", keys, file);
  };
  constexpr const char* kImages = "preprocessor_config.json";
  constexpr const char* kOuter = "processor_config.json";
  EXPECT_EQ(refusal({{"vision_aspect_ratio", "anyres_max_4"}}, kOuter), "");
  EXPECT_THAT(refusal({{"vision_aspect_ratio", "anyres"}}, kOuter),
              HasSubstr("is not anyres_max_ and a number"));
  EXPECT_THAT(refusal({{"num_image_tokens", nullptr}}, kOuter), HasSubstr("num_image_tokens: is missing"));
  EXPECT_THAT(refusal({{"image_grid_pinpoints", {{56, 57}}}}, kImages), HasSubstr("has [56, 57]"));
  EXPECT_THAT(refusal({{"do_center_crop", true}}, kImages), HasSubstr("do_center_crop: is true; only false"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}, "video_preprocessor_config.json"),
              HasSubstr("do_sharpen: unknown key"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}, kImages), HasSubstr("do_sharpen: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
