// Ovis2: the grid that covers a picture, its placeholders, what is refused.
#include "preprocess/families/ovis2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec Ovis2Spec(const nlohmann::json& keys = nullptr) {
  return ConfiguredSpec({{"image_processor_type", "Ovis2ImageProcessor"},
                         {"processor_class", "Ovis2Processor"},
                         {"crop_to_patches", true},
                         {"size", {{"height", 56}, {"width", 56}}}},
                        keys, {{"processor_config.json", {{"image_seq_length", 5}}}});
}

TEST(Ovis2, AGridHasTheFewestTilesThatCoverThePicture) {
  EXPECT_EQ(CoveringTileGrid({100, 100}, 384, 12), (TileGrid{1, 1}));
  EXPECT_EQ(CoveringTileGrid({384, 384}, 384, 12), (TileGrid{1, 1}));
  EXPECT_EQ(CoveringTileGrid({768, 768}, 384, 12), (TileGrid{2, 2}));
  EXPECT_EQ(CoveringTileGrid({8000, 8000}, 384, 9), (TileGrid{3, 3})) << "none covers enough";
}

TEST(Ovis2, EveryWireFormHasTheSameValues) { ExpectWireFormsAgree(Ovis2Spec(), "pictures/wide.png"); }

TEST(Ovis2, TheWholePictureIsFirstAndTokensStandBetweenTiles) {
  const ProcessorSpec spec = Ovis2Spec();
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  MediaFacts facts;
  facts.width = 112, facts.height = 112;
  const ItemLengths lengths = *(*family)->Measure(facts);
  EXPECT_EQ(lengths.input_rows, 5u);
  EXPECT_EQ(lengths.output_rows, 25u);
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  std::vector<uint32_t> tokens;
  for (const PlaceholderRun& run : runs) {
    if (run.token.has_value()) tokens.push_back(*run.token);
  }
  // Begin, grid, a column, a row, a column, end.
  EXPECT_EQ(tokens, (std::vector<uint32_t>{0, 1, 2, 3, 2, 4}));
}

TEST(Ovis2, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return std::string(Processor::LoadMedia(Ovis2Spec(keys), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"use_covering_area_grid", false}, {"min_patches", 2}}), "");
  EXPECT_THAT(refusal({{"do_resize", false}}), HasSubstr("do_resize"));
  EXPECT_THAT(refusal({{"min_patches", 20}}), HasSubstr("is above max_patches"));
  EXPECT_THAT(refusal({{"covering_threshold", 0.8}}), HasSubstr("covering_threshold"));
}

}  // namespace
}  // namespace evenkeel::preprocess
