#include "preprocess/families/qwen3_vl.h"

#include <gtest/gtest.h>

#include "preprocess/families/family.h"
#include "preprocess/families/qwen_vision.h"
#include "preprocess/video/frame_rules.h"
#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

TEST(Qwen3Vl, PixelsAreThoseOfTransformers) { ExpectPixelsOf("qwen3-vl"); }
TEST(Qwen3Vl, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("qwen3-vl"); }

TEST(Qwen3Vl, FrameSizesAreThoseOfTransformers) {
  for (const nlohmann::json& example : FamilyGolden("video", "smart_resize")) {
    Qwen3VideoSize rule{2, 32, example[3], example[4], 0};
    absl::StatusOr<ImageSize> size = SmartResize3d(example[0], {example[1], example[2]}, rule);
    const ImageSize expected{example[5], example[6]};
    EXPECT_EQ(size.ok() ? *size : ImageSize{}, expected) << example;
  }
}

TEST(Qwen3Vl, TimesAreWrittenAsTransformersWritesThem) {
  for (const nlohmann::json& example : FamilyGolden("video", "times")) {
    const auto chosen = example["chosen"].get<std::vector<uint32_t>>();
    std::vector<std::string> times;
    for (size_t i = 0; i < chosen.size(); i += 2) {
      times.push_back(
          TimeOf(std::span(chosen).subspan(i, std::min<size_t>(2, chosen.size() - i)), example["fps"]));
    }
    EXPECT_EQ(times, example["times"].get<std::vector<std::string>>());
  }
}

TEST(Qwen3Vl, EveryGridInTimeIsARunWithItsTime) {
  const ProcessorSpec spec = VisionSpec("qwen3-vl");
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = 640;
  facts.height = 352;
  facts.num_frames = 75;
  facts.fps_num = 25;
  facts.fps_den = 1;
  absl::StatusOr<ItemLengths> lengths = (*family)->Measure(facts);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_EQ(*lengths, (ItemLengths{3 * 22 * 40, 3 * 22 * 40, 3 * 11 * 20}));  // 6 frames of 352x640
  std::vector<PlaceholderRun> runs = {{"of another item", 1, {}}};
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].text, "<0.3 seconds>");  // frames 0 and 15 of 25 a second
  EXPECT_EQ(runs[2].text, "<2.7 seconds>");
  EXPECT_EQ(runs[1].rows, 11u * 20);
  EXPECT_EQ(runs[1].grid.t, 1u);
  EXPECT_EQ((*family)->fields(Medium::kVideo).size(), 2u);
}

TEST(Qwen3Vl, ACapOnFramesBoundsShortVideos) {
  const Qwen3VideoSize free{2, 32, 4096, 25165824, 0}, capped{2, 32, 4096, 25165824, 768};
  EXPECT_EQ(*SmartResize3d(4, {1920, 1080}, free), (ImageSize{1920, 1088}));
  ImageSize size = *SmartResize3d(4, {1920, 1080}, capped);
  EXPECT_LE(size.width * size.height, 768u * 32 * 32);
  EXPECT_FALSE(SmartResize3d(1, {100, 100}, free).ok());
}

TEST(Qwen3Vl, PixelsOfAFrameInTheJobAreRefused) {
  ProcessorSpec spec = VisionSpec("qwen3-vl");
  spec.video_max_pixels = 100000;
  EXPECT_TRUE(absl::IsInvalidArgument(Processor::LoadMedia(spec, Limits{}).status()));
}

}  // namespace
}  // namespace evenkeel::preprocess
