// LLaVA-NeXT-Video: LLaVA-NeXT's pictures, and frames that are cropped to one tile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

MediaFacts NineFrames(uint32_t width, uint32_t height) {
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = width, facts.height = height, facts.num_frames = 9, facts.fps_num = 3, facts.fps_den = 1;
  return facts;
}

TEST(LlavaNextVideo, PicturesAreThoseOfLlavaNext) {
  auto ours = LoadOrFail(VisionSpec("llava-next-video")), theirs = LoadOrFail(VisionSpec("llava-next"));
  for (const nlohmann::json& example : FamilyGolden("canvas", "llava_next")) {
    EXPECT_EQ(*MeasureCanvas(*ours, example), *MeasureCanvas(*theirs, example)) << example;
  }
}

TEST(LlavaNextVideo, AFrameHasAQuarterOfItsPatches) {
  auto processor = LoadOrFail(VisionSpec("llava-next-video"));
  EXPECT_EQ(*processor->Measure(NineFrames(500, 300)), (ItemLengths{9 * 576, 9, 9 * 144}));
  ASSERT_EQ(processor->fields(Medium::kVideo).size(), 1u);
  EXPECT_EQ(processor->fields(Medium::kVideo)[0].name, "pixel_values_videos");
  EXPECT_EQ(processor->fields(Medium::kVideo)[0].trailing, (std::vector<uint64_t>{3, 336, 336}));
}

TEST(LlavaNextVideo, OtherVideosAloneAreRefused) {
  const auto said = [](const nlohmann::json& keys) {
    auto processor = LoadOrFail(EditedSpec("llava-next-video", keys, "video_preprocessor_config.json"));
    const absl::Status status = processor->Measure(NineFrames(64, 48)).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(said({{"video_processor_type", "InternVLVideoProcessor"}}),
              HasSubstr("only LlavaNextVideoVideoProcessor is implemented"));
  EXPECT_THAT(said({{"do_center_crop", false}}), HasSubstr("frames of different sizes"));
  EXPECT_THAT(said({{"crop_size", 20}}), HasSubstr("smaller than four patches"));
}

TEST(LlavaNextVideo, RefusesUnknownKeys) {
  for (const char* file :
       {"preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"}) {
    EXPECT_THAT(RefusalOf("llava-next-video", {{"do_sharpen", true}}, file),
                HasSubstr("do_sharpen: unknown key"));
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
