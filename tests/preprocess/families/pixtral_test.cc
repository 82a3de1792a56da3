// Pixtral and Mistral Small 3.1: pictures of their own shape as patches, with a mark behind every row.
#include "preprocess/families/pixtral.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(Pixtral, PixelsAreThoseOfTransformers) { ExpectPixelsOf("pixtral"); }
TEST(Pixtral, PixelsOfMergedPatchesAreThoseOfTransformers) { ExpectPixelsOf("mistral3"); }
TEST(Pixtral, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("pixtral"); }
TEST(Pixtral, EveryWireFormSaysTheSameOfMergedPatches) { ExpectWireFormsAgree("mistral3"); }

TEST(Pixtral, SizesAreThoseOfTransformersForEveryPicture) {
  for (const nlohmann::json& example : FamilyGolden("canvas", "pixtral")) {
    const uint32_t most = example[2];
    EXPECT_EQ(PixtralSize({example[0], example[1]}, {most, most}, example[3]),
              (ImageSize{example[4], example[5]}))
        << example;
  }
}

TEST(Pixtral, EveryRowOfTokensIsARunAndTheLastEndsOtherwise) {
  const auto family = FamilyOf("mistral3");
  const MediaFacts facts{.width = 100, .height = 50};  // 112x56 pixels, 4x2 tokens
  EXPECT_EQ(*family->Measure(facts), (ItemLengths{32, 32, 8}));
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE(family->Placeholders(facts, runs).ok());
  ASSERT_EQ(runs.size(), 2u);
  for (const PlaceholderRun& run : runs) EXPECT_EQ(run.rows, 4u);
  const MediumStyle style = PictureStyleOf(*family);
  EXPECT_EQ(style.begin + style.placeholder + style.end + style.last_end, "[IMG][IMG_BREAK][IMG_END]");
}

TEST(Pixtral, TellsTheModelHowLargeThePictureBecame) {
  ExpectImageSizes("mistral3", "pictures/scene.png", {56, 56});  // of 41x29
}

TEST(Pixtral, APictureThatBecomesNothingIsRefused) {
  const absl::Status refused = FamilyOf("pixtral")->Measure({.width = 1, .height = 1025}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("would resize to 0x1024, which has no pixels"));
  EXPECT_TRUE(FamilyOf("pixtral")->Measure({.width = 1, .height = 1024}).ok());
}

TEST(Pixtral, UsesTheProcessorsPatchSizeBeforeTheImageProcessors) {
  const MediaFacts facts{.width = 100, .height = 50};
  const auto rows = [&](const nlohmann::json& keys) {
    return LoadOrFail(EditedSpec("pixtral", keys))->Measure(facts)->output_rows;
  };
  EXPECT_EQ(rows({}), 28u);
  EXPECT_EQ(rows({{"patch_size", 20}}), 28u);
  EXPECT_EQ(rows({{"patch_size", nullptr}}), 28u);
  const nlohmann::json alone = {{"image_processor_type", "PixtralImageProcessor"}, {"patch_size", 20}};
  EXPECT_EQ(LoadOrFail(FolderSpec({{"preprocessor_config.json", alone}}))->Measure(facts)->output_rows, 15u);
}

TEST(Pixtral, RefusesWhatThePublishedProcessorsDoNotDo) {
  EXPECT_EQ(RefusalOf("pixtral", {{"do_pad", false}, {"size", 512}}), "");
  EXPECT_EQ(RefusalOf("pixtral", {{"size", {{"height", 300}, {"width", 500}}}}), "");
  EXPECT_THAT(RefusalOf("pixtral", {{"size", {{"shortest_edge", 300}}}}), HasSubstr("size: is neither"));
  EXPECT_THAT(RefusalOf("pixtral", {{"do_center_crop", true}}), HasSubstr("do_center_crop: is true"));
  EXPECT_THAT(RefusalOf("pixtral", {{"patch_size", {{"height", 16}, {"width", 8}}}}),
              HasSubstr("patch_size: is not a square of at most 256 pixels"));
  EXPECT_THAT(RefusalOf("pixtral", {{"processor_class", "LightOnOcrProcessor"}}),
              HasSubstr("of LightOnOcrProcessor is not implemented"));
  EXPECT_THAT(RefusalOf("mistral3", {{"patch_size", 16}}, "processor_config.json"),
              HasSubstr("patch_size: is 16, but config.json has 14"));
  EXPECT_THAT(RefusalOf("mistral3", {{"num_tokens", 16}}, "processor_config.json"),
              HasSubstr("num_tokens: unknown key"));
}

TEST(Pixtral, APictureThatKeepsItsSizeMustBeOfWholeTokens) {
  const auto family = LoadOrFail(EditedSpec("mistral3", {{"do_resize", false}}));
  EXPECT_EQ(family->Measure({.width = 56, .height = 28})->output_rows, 2u);
  const absl::Status refused = family->Measure({.width = 70, .height = 28}).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("70x28 pixels, which are not whole tokens of 28"));
}

}  // namespace
}  // namespace evenkeel::preprocess
