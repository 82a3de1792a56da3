// GLM-4V: pictures on a grid whose sizes count a still as the frames of a temporal patch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "preprocess/families/family.h"
#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

TEST(Glm4v, PixelsAreThoseOfTransformers) { ExpectPixelsOf("glm4v"); }
TEST(Glm4v, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("glm4v"); }

TEST(Glm4v, PatchesAreAsManyAsThoseOfTransformersForEverySize) {
  auto processor = LoadOrFail(VisionSpec("glm4v"));
  for (const nlohmann::json& example : FamilyGolden("canvas", "glm4v")) {
    absl::StatusOr<ItemLengths> lengths = MeasureCanvas(*processor, example);
    const uint32_t patches = example[2];
    EXPECT_EQ(lengths.ok() ? *lengths : ItemLengths{}, (ItemLengths{patches, patches, patches / 4}))
        << example;
  }
}

TEST(Glm4v, StandsBetweenItsOwnMarks) {
  const auto family = FamilyOf("glm4v");
  ASSERT_NE(family, nullptr);
  const std::vector<MediumStyle> styles = family->styles();
  ASSERT_EQ(styles.size(), 2u);
  for (const MediumStyle& style : styles) {
    EXPECT_EQ(style.begin + style.placeholder + style.end, "<|begin_of_image|><|image|><|end_of_image|>");
    EXPECT_TRUE(style.mrope);
  }
}

MediaFacts VideoOf(uint32_t frames, uint32_t fps) {
  MediaFacts facts{.medium = Medium::kVideo, .width = 56, .height = 56, .num_frames = frames};
  facts.fps_num = fps, facts.fps_den = 1;
  return facts;
}

// The texts of a video's grids, each after its placeholders.
std::string TimesOf(const MediaFamily& family, const MediaFacts& facts) {
  std::vector<PlaceholderRun> runs;
  EXPECT_TRUE(family.Placeholders(facts, runs).ok());
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].rows == 0, i % 2 == 1);
    if (runs[i].rows == 0) absl::StrAppend(&out, out.empty() ? "" : "|", runs[i].text);
  }
  return out;
}

TEST(Glm4v, TheTimeOfAGridFollowsIt) {
  const ProcessorSpec later = EditedSpec(
      "glm4v", {{"image_processor_type", "Glm46VImageProcessor"}, {"processor_class", "Glm46VProcessor"}});
  auto of_46 = LoadVisionFamily(later.vision, later, Limits{});
  ASSERT_TRUE(of_46.ok()) << of_46.status();
  EXPECT_EQ(TimesOf(*FamilyOf("glm4v"), VideoOf(24, 8)), "0|1|2");  // 0.0 and 0.5, 1.0 and 1.5, 2.0 and 2.5
  EXPECT_EQ(TimesOf(**of_46, VideoOf(8, 8)), "0.0 seconds|0.4 seconds|0.8 seconds");  // six frames a second
}

TEST(Glm4v, OptionsWithoutAnArgumentAreRefused) {
  const auto refusal = [](ProcessorSpec spec) {
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  ProcessorSpec spec = VisionSpec("glm4v");
  spec.fps = 1;
  EXPECT_EQ(refusal(spec), "");
  spec.max_frames = 8;
  EXPECT_THAT(refusal(spec), testing::HasSubstr("this processor has no bounds"));
  spec.frame_rule = "uniform";
  EXPECT_EQ(refusal(spec), "");
  spec = EditedSpec(
      "glm4v", {{"image_processor_type", "Glm46VImageProcessor"}, {"processor_class", "Glm46VProcessor"}});
  spec.fps = 1;
  EXPECT_THAT(refusal(spec), testing::HasSubstr("this processor ignores it"));
}

TEST(Glm4v, FilesThatSampleNothingHavePicturesAlone) {
  auto processor = LoadOrFail(EditedSpec("glm4v", {{"do_sample_frames", false}}));
  const absl::Status refused = processor->Measure(VideoOf(24, 8)).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("do_sample_frames: is false"));
}

}  // namespace
}  // namespace evenkeel::preprocess
