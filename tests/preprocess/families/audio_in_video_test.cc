#include "preprocess/families/audio_in_video.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace evenkeel::preprocess {
namespace {

using Runs = std::vector<PlaceholderRun>;

AudioInVideo RuleOf(const std::string& model) {
  AudioInVideo rule{.begin = "<|audio_start|>", .end = "<|audio_end|>", .positions_per_second = 13};
  if (model == "qwen2_5_omni") {
    rule.positions_per_second = 25;
    rule.chunk_positions = 50;
    rule.shares_end_positions = true;
  }
  return rule;
}

// "vvaav": a letter for every placeholder.
std::string Letters(const Runs& runs) {
  std::string out;
  for (const PlaceholderRun& run : runs)
    out.append(run.rows, run.of == PlaceholderRun::Of::kAudio ? 'a' : 'v');
  return out;
}

Runs Interleaved(const AudioInVideo& rule, const VisionGrid& grid, double seconds, uint32_t audio) {
  Runs runs;
  const absl::Status status = InterleaveAudio(rule, grid, grid.h * grid.w / 4, seconds, audio, runs);
  EXPECT_TRUE(status.ok()) << status;
  return runs;
}

TEST(AudioInVideo, GridsStandAtTheirTimes) {
  const AudioInVideo rule = RuleOf("qwen3_omni_moe");
  EXPECT_EQ(Letters(Interleaved(rule, {2, 2, 4, 0}, 1, 15)), "vv" + std::string(13, 'a') + "vvaa");
  EXPECT_EQ(Letters(Interleaved(rule, {3, 2, 2, 0}, 1, 2)), "vaavv") << "the video is longer";
}

TEST(AudioInVideo, ChunksOfTheVideoStandBeforeThoseOfTheAudio) {
  const AudioInVideo rule = RuleOf("qwen2_5_omni");
  EXPECT_EQ(Letters(Interleaved(rule, {3, 2, 2, 0}, 1, 60)),
            "vv" + std::string(50, 'a') + "v" + std::string(10, 'a'));
  EXPECT_EQ(Letters(Interleaved(rule, {3, 2, 2, 0}, 1, 50)), "vv" + std::string(50, 'a') + "v");
}

TEST(AudioInVideo, TheFirstRunHasTheGrid) {
  const Runs runs = Interleaved(RuleOf("qwen3_omni_moe"), {2, 2, 2, 1}, 1, 15);
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].grid.t, 2u);
  for (size_t i = 1; i < runs.size(); ++i) EXPECT_EQ(runs[i].grid.t, 0u) << i;
}

TEST(AudioInVideo, ChunksThatRoundingWouldMoveAreRefused) {
  Runs runs;
  const absl::Status status =
      InterleaveAudio(RuleOf("qwen2_5_omni"), {20000, 2, 2, 0}, 1, 2 / 29.97, 40000, runs);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("processor.fps"), std::string::npos) << status;
}

}  // namespace
}  // namespace evenkeel::preprocess
