#include "preprocess/internvl.h"

#include <gtest/gtest.h>

#include "tests/preprocess/family_golden.h"

namespace evenkeel {
namespace {

TEST(InternVl, PixelsAreThoseOfTransformers) { ExpectPixelsOf("internvl"); }
TEST(InternVl, TheWireFormExpandsToTheSameFloats) { ExpectExpansionGivesTheFloats("internvl"); }

TEST(InternVl, TilesAreThoseOfTransformersForEverySize) {
  auto processor = LoadOrFail(VisionSpec("internvl"));
  for (const nlohmann::json& example : FamilyGolden("canvas", "internvl")) {
    MediaFacts facts;
    facts.width = example[0];
    facts.height = example[1];
    absl::StatusOr<ItemLengths> lengths = processor->Measure(facts);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    EXPECT_EQ(lengths->input_rows, example[2]) << example;
    EXPECT_EQ(lengths->output_rows, 256 * lengths->input_rows);
    EXPECT_EQ(lengths->cost_length, 1024 * lengths->input_rows);
  }
}

// A tie goes to the later candidate in order of area while its tiles cover at most twice the picture.
TEST(InternVl, TiesAreDecidedByArea) {
  EXPECT_EQ(NearestTileGrid({448, 448}, {448, 448}, 1, 12), (TileGrid{1, 1}));
  EXPECT_EQ(NearestTileGrid({700, 700}, {448, 448}, 1, 12), (TileGrid{2, 2}));
  EXPECT_EQ(NearestTileGrid({2000, 2000}, {448, 448}, 1, 12), (TileGrid{3, 3}));
  EXPECT_EQ(NearestTileGrid({1, 4000}, {448, 448}, 1, 12), (TileGrid{1, 12}));
}

}  // namespace
}  // namespace evenkeel
