#include "preprocess/text/positions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/preprocess/text/golden.h"

namespace evenkeel::preprocess {
namespace {

std::vector<int64_t> PositionsOf(uint64_t length, const std::vector<GridSpan>& spans,
                                 uint32_t tokens_per_second, bool after_time = false) {
  std::vector<int64_t> out(3 * length, -1);
  WritePositions(spans, {.merge_size = 2, .tokens_per_second = tokens_per_second, .after_time = after_time},
                 out);
  return out;
}

TEST(Positions, CountOnInPlainText) {
  EXPECT_EQ(PositionsOf(3, {}, 0), (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_TRUE(PositionsOf(0, {}, 0).empty());
}

void ExpectPositionsOf(const std::string& golden, bool after_time) {
  for (const nlohmann::json& example : GoldenCases(golden)) {
    std::vector<GridSpan> spans;
    for (const nlohmann::json& span : example["spans"]) {
      GridSpan& out = spans.emplace_back();
      out.medium = span["medium"] == "video" ? Medium::kVideo : Medium::kImage;
      out.begin = span["begin"];
      out.grid = {span["grid"][0], span["grid"][1], span["grid"][2], span["seconds"].get<float>()};
      out.tokens = *MergedTokens(out.grid, 2);
    }
    std::vector<int64_t> expected;
    for (const nlohmann::json& row : example["positions"]) {
      for (int64_t position : row) expected.push_back(position);
    }
    EXPECT_EQ(PositionsOf(example["length"], spans, example["tokens_per_second"], after_time), expected)
        << example;
  }
}

TEST(Positions, AreThoseOfGetRopeIndex) { ExpectPositionsOf("rope.json", /*after_time=*/false); }

TEST(Positions, OfTheOmniModelsAreThoseOfTheirs) { ExpectPositionsOf("rope_omni.json", /*after_time=*/true); }

TEST(Positions, WorkForItemsThatTouch) {
  GridSpan first{.begin = 0, .tokens = 2, .medium = Medium::kImage, .grid = {1, 2, 4, 0}};
  GridSpan second{.begin = 2, .tokens = 1, .medium = Medium::kImage, .grid = {1, 2, 2, 0}};
  EXPECT_EQ(PositionsOf(4, {first, second}, 2), (std::vector<int64_t>{0, 0, 2, 3, 0, 0, 2, 3, 0, 1, 2, 3}));
}

TEST(Positions, RefuseGridsThatDoNotMerge) {
  EXPECT_EQ(*MergedTokens({2, 4, 6, 0}, 2), 12);
  EXPECT_FALSE(MergedTokens({1, 3, 4, 0}, 2).ok());
  EXPECT_FALSE(MergedTokens({1, 4, 3, 0}, 2).ok());
  EXPECT_FALSE(MergedTokens({1, 4, 4, 0}, 0).ok());
}

}  // namespace
}  // namespace evenkeel::preprocess
