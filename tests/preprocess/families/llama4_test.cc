// Llama 4: grids of tiles that scale a picture least, and values in bfloat16.
#include "preprocess/families/llama4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(Llama4, PixelsAreThoseOfTransformers) { ExpectPixelsOf("llama4", 5); }
TEST(Llama4, EveryWireFormHasTheSameValues) {
  ExpectWireFormsAgree(VisionSpec("llama4"), "pictures/wide.png", {"aten_u8"});
}

TEST(Llama4, SizesAreThoseOfTransformersForEveryPicture) {
  const std::vector<TileGrid> grids = Llama4Grids(16);
  for (const nlohmann::json& example : FamilyGolden("canvas", "llama4")) {
    const ImageSize picture{example[0], example[1]};
    const bool to_largest = example[2] == 1;
    const ImageSize canvas = LeastScaledGrid<float>(picture, grids, 336, to_largest).Canvas({336, 336});
    EXPECT_EQ(canvas, (ImageSize{example[3], example[4]})) << example;
    EXPECT_EQ(Llama4Size(picture, canvas, 336, to_largest), (ImageSize{example[5], example[6]})) << example;
  }
}

TEST(Llama4, RowsOfTilesEndAndTheWholePictureComesLast) {
  const ProcessorSpec spec = VisionSpec("llama4", "aten_u8");
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  MediaFacts facts;
  facts.width = facts.height = 112;
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  std::string written;
  for (const PlaceholderRun& run : runs) {
    written += run.token.has_value() ? std::to_string(*run.token) : std::to_string(run.rows) + "*";
  }
  EXPECT_EQ(written, "04*34*44*34*414*2");
  EXPECT_EQ((*family)->Measure(facts)->input_rows, 5u);
}

TEST(Llama4, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    ProcessorSpec spec = EditedSpec("llama4", keys);
    spec.resampler = "aten_u8";
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"resize_to_max_canvas", true}}), "");
  EXPECT_THAT(refusal({{"do_normalize", false}}), HasSubstr("do_normalize: is false; only true"));
  EXPECT_THAT(refusal({{"size", {{"height", 56}, {"width", 28}}}}), HasSubstr("size: is not a square"));
  EXPECT_THAT(refusal({{"max_patches", 65}}), HasSubstr("max_patches: is 65, not between"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
  EXPECT_EQ(RefusalOf("llama4", nlohmann::json::object()), "");
  ProcessorSpec pillow = VisionSpec("llama4");
  pillow.resampler = "pil";
  EXPECT_THAT(std::string(Processor::LoadMedia(pillow, Limits{}).status().message()),
              HasSubstr("torchvision only; set it to aten_u8"));
}

}  // namespace
}  // namespace evenkeel::preprocess
