// LLaVA-NeXT: a tile of the whole picture, then tiles of the resolution that suits it best.
#include "preprocess/families/llava_next.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "preprocess/families/family.h"
#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(LlavaNext, PixelsAreThoseOfTransformers) { ExpectPixelsOf("llava-next"); }
TEST(LlavaNext, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("llava-next"); }

TEST(LlavaNext, PlaceholdersAreAsManyAsTransformersWritesForEverySize) {
  auto processor = LoadOrFail(VisionSpec("llava-next"));
  for (const nlohmann::json& example : FamilyGolden("canvas", "llava_next")) {
    absl::StatusOr<ItemLengths> lengths = MeasureCanvas(*processor, example);
    EXPECT_EQ(lengths.ok() ? lengths->output_rows : 0, example[2]) << example;
  }
}

TEST(LlavaNext, TellsTheModelHowLargeThePictureWas) {
  ExpectImageSizes("llava-next", "pictures/wide.png", {41, 5});
}

TEST(LlavaNext, APictureWhoseTilesAreBeyondTheLimitIsRefused) {
  const ProcessorSpec spec = VisionSpec("llava-next");
  Limits limits;
  limits.max_image_pixels = 336 * 336;
  auto family = LoadVisionFamily(spec.vision, spec, limits);
  ASSERT_TRUE(family.ok()) << family.status();
  MediaFacts facts;
  facts.width = 500, facts.height = 3;  // five rows of pixels, and black, in two tiles
  const absl::Status refused = (*family)->Measure(facts).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("would resize to 672x336, more than"));
}

TEST(LlavaNext, KeepsMostOfThePictureAndWastesLeast) {
  const ImageSize square{672, 672}, wide{672, 336}, high{336, 672};
  EXPECT_EQ(BestResolution({672, 672}, std::vector{wide, high, square}), square);
  EXPECT_EQ(BestResolution({600, 300}, std::vector{square, high, wide}), wide);
  EXPECT_EQ(BestResolution({600, 300}, std::vector{wide, wide, square}), wide);
  EXPECT_EQ(FittingSize({500, 20}, wide), (ImageSize{672, 27}));
  EXPECT_EQ(FittingSize({20, 500}, wide), (ImageSize{14, 336}));
}

std::string Refusal(const nlohmann::json& keys) { return RefusalOf("llava-next", keys); }

TEST(LlavaNext, RefusesWhatWouldResizeItsTilesAgain) {
  EXPECT_EQ(Refusal({{"do_pad", false}, {"do_center_crop", false}}), "");
  EXPECT_EQ(Refusal({{"size", {{"height", 336}, {"width", 336}}}}), "");
  EXPECT_THAT(Refusal({{"crop_size", 224}}), HasSubstr("crop_size: is not the square of 336"));
  EXPECT_THAT(Refusal({{"size", {{"height", 336}, {"width", 224}}}}), HasSubstr("size: is neither"));
  EXPECT_THAT(Refusal({{"image_grid_pinpoints", {{336, 500}}}}), HasSubstr("has [336, 500]"));
  EXPECT_THAT(Refusal({{"image_grid_pinpoints", {336, 672}}}), HasSubstr("not a list of pairs"));
  EXPECT_THAT(Refusal({{"image_grid_pinpoints", nlohmann::json::array()}}), HasSubstr("has 0 resolutions"));
  EXPECT_THAT(Refusal({{"size", 7}, {"crop_size", 7}, {"image_grid_pinpoints", {{7, 7}}}}),
              HasSubstr("size: is 7x7 pixels, smaller than one 14-pixel patch"));
  EXPECT_THAT(Refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
