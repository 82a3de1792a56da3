#include "preprocess/text/positions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "preprocess/families/audio_in_video.h"
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

// Placeholders as the processors of transformers write them, and positions as their models compute them.
TEST(Positions, OfVideosWithTheirAudioAreThoseOfTransformers) {
  for (const nlohmann::json& example : GoldenCases("audio_in_video.json")) {
    const bool in_chunks = example["model"] == "qwen2_5_omni";
    const AudioInVideo rule{.positions_per_second = example["per_second"],
                            .chunk_positions = in_chunks ? 50u : 0u,
                            .shares_end_positions = in_chunks};
    std::vector<GridSpan> spans;
    for (const nlohmann::json& video : example["videos"]) {
      const double seconds = video["seconds"];
      const VisionGrid grid{video["grid"][0], video["grid"][1], video["grid"][2],
                            static_cast<float>(seconds)};
      GridSpan& span = spans.emplace_back();
      span.begin = video["begin"];
      span.tokens = *MergedTokens(grid, 2);
      span.medium = Medium::kVideo;
      span.grid = grid;
      std::vector<uint32_t> lengths;
      std::vector<PlaceholderRun> runs;
      ASSERT_TRUE(InterleaveAudio(rule, grid, grid.h * grid.w / 4, seconds, video["audio"], runs).ok());
      for (const PlaceholderRun& run : runs) {
        lengths.push_back(run.rows);
        span.runs.push_back({run.rows, run.of == PlaceholderRun::Of::kAudio});
      }
      EXPECT_EQ(lengths, video["runs"].get<std::vector<uint32_t>>()) << video;
    }
    std::vector<int64_t> expected, positions(3 * example["length"].get<size_t>(), -1);
    for (const nlohmann::json& row : example["positions"]) {
      for (int64_t position : row) expected.push_back(position);
    }
    WritePositions(spans,
                   {.merge_size = 2,
                    .tokens_per_second = example["per_second"],
                    .after_time = true,
                    .shares_end_positions = rule.shares_end_positions},
                   positions);
    EXPECT_EQ(positions, expected) << example["videos"];
  }
}

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
