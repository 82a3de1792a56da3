// GLM-4V: pictures on a grid whose sizes count a still as the frames of a temporal patch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Glm4v, StandsBetweenItsOwnMarksAndRefusesVideosByName) {
  const auto family = FamilyOf("glm4v");
  ASSERT_NE(family, nullptr);
  const MediumStyle style = PictureStyleOf(*family);
  EXPECT_EQ(style.begin + style.placeholder + style.end, "<|begin_of_image|><|image|><|end_of_image|>");
  EXPECT_TRUE(style.mrope);
  MediaFacts facts{.medium = Medium::kVideo, .width = 56, .height = 56, .num_frames = 8};
  facts.fps_num = 2;
  absl::Status refused = family->Measure(facts).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("Glm4vProcessor"));
}

}  // namespace
}  // namespace evenkeel::preprocess
