// Idefics3 and SmolVLM: three resizes after each other, and special tokens of every tile's place.
#include "preprocess/families/idefics3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(Idefics3, PixelsAreThoseOfTransformers) { ExpectPixelsOf("idefics3"); }
TEST(Idefics3, EveryWireFormHasTheSameValues) { ExpectWireFormsAgree("idefics3"); }

TEST(Idefics3, TilesAreAsManyAsTransformersCutsForEverySize) {
  auto processor = LoadOrFail(VisionSpec("idefics3"));
  for (const nlohmann::json& example : FamilyGolden("canvas", "idefics3")) {
    absl::StatusOr<ItemLengths> lengths = MeasureCanvas(*processor, example);
    ASSERT_TRUE(lengths.ok()) << example << lengths.status();
    EXPECT_EQ(lengths->input_rows, example[2]) << example;
    EXPECT_EQ(lengths->output_rows, 4 * lengths->input_rows) << example;
  }
}

// As text, with the tokens by their names and '*' for a run of placeholders.
std::string Written(const MediaFamily& family, const MediaFacts& facts) {
  std::vector<PlaceholderRun> runs;
  EXPECT_TRUE(family.Placeholders(facts, runs).ok());
  const MediumStyle style = PictureStyleOf(family);
  std::string out;
  for (const PlaceholderRun& run : runs) {
    out += run.text;
    if (run.token.has_value()) out += style.tokens[*run.token];
    if (run.rows != 0) out += "*";
  }
  return out;
}

TEST(Idefics3, WritesThePlaceOfEveryTileAndTheWholePictureLast) {
  MediaFacts facts;
  facts.width = 224, facts.height = 56;
  const std::string fake = "<fake_token_around_image>";
  EXPECT_EQ(Written(*FamilyOf("idefics3"), facts), fake + "<row_1_col_1>*" + fake + "<row_1_col_2>*" + fake +
                                                       "<row_1_col_3>*" + fake + "<row_1_col_4>*\n\n" + fake +
                                                       "<global-img>*" + fake);
  const ProcessorSpec whole = EditedSpec("idefics3", {{"do_image_splitting", false}});
  auto family = LoadVisionFamily(whole.vision, whole, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  EXPECT_EQ(Written(**family, facts), fake + "<global-img>*" + fake);
  EXPECT_EQ((*family)->Measure(facts)->input_rows, 1u);
}

TEST(Idefics3, SizesAreEvenAndOfAtLeastOnePixel) {
  EXPECT_EQ(Idefics3Size({1000, 333}, 364), (ImageSize{364, 122}));
  EXPECT_EQ(Idefics3Size({1, 5000}, 364), (ImageSize{1, 364}));
  EXPECT_EQ(Idefics3Size({100, 100}, 5000), (ImageSize{4096, 4096}));
  EXPECT_EQ(Idefics3Canvas({364, 122}, 56), (ImageSize{392, 168}));
}

TEST(Idefics3, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) { return RefusalOf("idefics3", keys); };
  EXPECT_EQ(refusal({{"do_pad", false}, {"video_sampling", {{"fps", 1}}}}), "");
  EXPECT_THAT(refusal({{"size", {{"height", 5}, {"width", 5}}}}), HasSubstr("size: is not {longest_edge}"));
  EXPECT_THAT(refusal({{"size", {{"longest_edge", 400}}}}), HasSubstr("size: makes 8 rows of tiles of 56"));
  EXPECT_THAT(refusal({{"max_image_size", {{"longest_edge", 7}}}}), HasSubstr("makes 32 rows of tiles"));
  EXPECT_THAT(refusal({{"do_resize", false}}), HasSubstr("do_resize: only true"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
