#include "preprocess/families/qwen2_vl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/part.h"
#include "preprocess/families/patches.h"
#include "preprocess/video/frame_rules.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/items.h"

namespace evenkeel::preprocess {
namespace {

ProcessorSpec Spec(Wire wire, const std::string& folder = "qwen2-vl") {
  ProcessorSpec spec;
  spec.vision = GoldenPath("processors/" + folder);
  spec.wire = wire;
  return spec;
}

MediaFacts Image(uint32_t width, uint32_t height) {
  MediaFacts facts;
  facts.width = width;
  facts.height = height;
  return facts;
}

TEST(Qwen2Vl, ResizesToTheSizesOfTheReference) {
  struct Case {
    uint32_t height, width, expected_height, expected_width;
  };
  for (Case c : {Case{224, 224, 224, 224},
                 {448, 448, 448, 448},
                 {76, 100, 84, 112},
                 {14, 14, 56, 56},
                 {42, 42, 56, 56},
                 {70, 70, 56, 56},
                 {98, 98, 112, 112},
                 {10, 2000, 28, 812},
                 {1, 200, 28, 812}}) {
    absl::StatusOr<ImageSize> size = SmartResize(c.height, c.width, 28, 3136, 12845056, false);
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(size->height, c.expected_height) << c.height << "x" << c.width;
    EXPECT_EQ(size->width, c.expected_width) << c.height << "x" << c.width;
  }
}

// Lines: frames, rate, what is asked of the count, sides, bounds of the pixels; then count, checksum, sides.
TEST(Qwen2Vl, ChoosesFramesAndTheirSizesAsQwenVlUtils) {
  std::ifstream file(GoldenPath("video/qwen_vl_utils.txt"));
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  ProcessorSpec spec = Spec(Wire::kU8);
  uint64_t min_pixels = 0, max_pixels = 0, checksum = 0;
  uint32_t count = 0, width = 0, height = 0;
  int lines = 0, failing = 0;
  FrameChoice choice{.rule = FrameRule::kQwenVlUtils, .multiple = 2};
  while (file >> facts.num_frames >> facts.fps_num >> facts.fps_den >> choice.fps >> choice.min_frames >>
         choice.max_frames >> facts.width >> facts.height >> min_pixels >> max_pixels >> count >> checksum >>
         width >> height) {
    ++lines;
    SCOPED_TRACE(absl::StrCat("line ", lines));
    absl::StatusOr<uint32_t> counted = NumChosenFrames(choice, facts);
    EXPECT_EQ(counted.value_or(0), count);
    std::vector<uint32_t> chosen;
    ChooseFrames(choice, facts, count, /*times=*/{}, chosen);
    uint64_t sum = 0;
    for (size_t i = 0; i < chosen.size(); ++i) sum += (i + 1) * uint64_t{chosen[i]};
    EXPECT_EQ(sum, checksum);

    spec.fps = choice.fps;
    spec.min_frames = choice.min_frames;
    spec.max_frames = choice.max_frames;
    spec.video_min_pixels = min_pixels != 0 ? std::optional(min_pixels) : std::nullopt;
    spec.video_max_pixels = max_pixels != 0 ? std::optional(max_pixels) : std::nullopt;
    auto processor = Processor::LoadMedia(spec, Limits{});
    ASSERT_TRUE(processor.ok()) << processor.status();
    absl::StatusOr<ItemLengths> lengths = (*processor)->Measure(facts);
    failing += width == 0;
    EXPECT_EQ(lengths.ok(), width != 0) << lengths.status();
    if (!lengths.ok()) continue;
    EXPECT_EQ(lengths->input_rows, uint64_t{count} / 2 * (width / 14) * (height / 14));
  }
  EXPECT_GT(lines, 600);
  EXPECT_GT(failing, 20) << "what the package fails on is among them";
}

TEST(Qwen2Vl, StaysWithinItsPixelsAndMultiples) {
  Dice dice(2);
  for (int round = 0; round < 3000; ++round) {
    uint32_t height = 1 + dice.Roll(3000), width = 1 + dice.Roll(3000);
    absl::StatusOr<ImageSize> size = SmartResize(height, width, 28, 3136, 1003520, false);
    if (static_cast<double>(std::max(height, width)) / std::min(height, width) > 200) {
      EXPECT_TRUE(absl::IsInvalidArgument(size.status()));
      continue;
    }
    ASSERT_TRUE(size.ok());
    EXPECT_EQ(size->height % 28, 0u);
    EXPECT_EQ(size->width % 28, 0u);
    EXPECT_GE(uint64_t{size->height} * size->width, 3136u);
    EXPECT_LE(uint64_t{size->height} * size->width, 1003520u);
  }
}

TEST(Qwen2Vl, TokensAreThoseOfTheReference) {
  auto processor = Processor::LoadMedia(Spec(Wire::kU8), Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  for (auto [width, height, tokens] : {std::tuple{224u, 224u, 64u}, {448u, 448u, 256u}, {100u, 76u, 12u}}) {
    absl::StatusOr<ItemLengths> lengths = (*processor)->Measure(Image(width, height));
    ASSERT_TRUE(lengths.ok());
    EXPECT_EQ(*lengths, (ItemLengths{4 * tokens, 4 * tokens, tokens}));
  }
  EXPECT_TRUE(absl::IsInvalidArgument((*processor)->Measure(Image(10, 2001)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*processor)->Measure(Image(0, 0)).status()));
}

TEST(Qwen2Vl, JobOverridesReplaceTheCheckpointsPixels) {
  ProcessorSpec spec = Spec(Wire::kU8);
  spec.max_pixels = 50176;
  auto processor = Processor::LoadMedia(spec, Limits{});
  ASSERT_TRUE(processor.ok());
  EXPECT_EQ((*processor)->Measure(Image(448, 448))->output_rows, 64u);
  EXPECT_NE((*processor)->digest(), (*Processor::LoadMedia(Spec(Wire::kU8), Limits{}))->digest());
}

TEST(Qwen2Vl, PixelValuesEqualPillowAndNumpyBitForBit) {
  ProcessorSpec spec = Spec(Wire::kF32);
  spec.resampler = "pil";
  Item item = Make(spec, Medium::kImage, "images/scene.png");
  ASSERT_TRUE(item.status.ok()) << item.status;
  EXPECT_EQ(item.lengths, (ItemLengths{24, 24, 6}));
  EXPECT_EQ(item.fields[0], Golden("images/qwen2_vl.f32"));
  int64_t grid[3];
  std::memcpy(grid, item.fields[1].data(), sizeof(grid));
  EXPECT_EQ(std::vector<int64_t>(grid, grid + 3), (std::vector<int64_t>{1, 4, 6}));
}

TEST(Qwen2Vl, TheWireFormsSayTheSame) {
  for (auto [medium, name] :
       {std::pair{Medium::kImage, "images/baseline-420.jpg"}, {Medium::kVideo, "video/h264.mp4"}}) {
    Item f32 = Make(Spec(Wire::kF32), medium, name);
    Item u8 = Make(Spec(Wire::kU8), medium, name);
    Item bf16 = Make(Spec(Wire::kBf16), medium, name);
    ASSERT_TRUE(f32.status.ok() && u8.status.ok() && bf16.status.ok())
        << f32.status << u8.status << bf16.status;
    std::vector<float> values(f32.fields[0].size() / sizeof(float)), expanded(values.size());
    std::memcpy(values.data(), f32.fields[0].data(), f32.fields[0].size());
    auto processor = Processor::LoadMedia(Spec(Wire::kU8), Limits{});
    const FieldSpec& field = (*processor)->fields(medium)[0];
    ASSERT_NE(field.expansion, nullptr);
    EXPECT_EQ(field.expansion->frames_on_wire, medium == Medium::kImage ? 1u : 2u);
    ASSERT_TRUE(ExpandPixels(*field.expansion, u8.fields[0], expanded).ok());
    EXPECT_EQ(expanded, values);
    ASSERT_EQ(bf16.fields[0].size(), values.size() * 2);
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, &bf16.fields[0][2 * i], sizeof(half));
      ASSERT_EQ(half, ToBf16(values[i])) << i;
    }
    EXPECT_EQ(u8.fields[1], f32.fields[1]);
  }
}

TEST(Qwen2Vl, Bf16RoundsToNearestEven) {
  EXPECT_EQ(ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ToBf16(1.00390625f), 0x3f80);  // a tie: to even
  EXPECT_EQ(ToBf16(1.01171875f), 0x3f82);  // a tie: to even
  EXPECT_EQ(ToBf16(1.00391f), 0x3f81);
  EXPECT_EQ(ToBf16(-2.0f), 0xc000);
  EXPECT_EQ(ToBf16(INFINITY), 0x7f80);
  EXPECT_EQ(ToBf16(NAN) & 0x7fc0, 0x7fc0);
}

TEST(Qwen2Vl, TheConfigurationMayBeNestedAndSaysWhichModelItIs) {
  auto processor = Processor::LoadMedia(Spec(Wire::kU8, "qwen2_5-vl"), Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  EXPECT_EQ((*processor)->fields(Medium::kVideo).size(), 3u);
  EXPECT_NE((*processor)->digest(), (*Processor::LoadMedia(Spec(Wire::kU8), Limits{}))->digest());
}

TEST(Qwen2Vl, AVideoHasItsGridAndTimes) {
  Item item = Make(Spec(Wire::kU8), Medium::kVideo, "video/h264.mp4");
  ASSERT_TRUE(item.status.ok()) << item.status;
  int64_t grid[3];
  float seconds;
  std::memcpy(grid, item.fields[1].data(), sizeof(grid));
  std::memcpy(&seconds, item.fields[2].data(), sizeof(seconds));
  // Four of 24 frames at 12 a second; 50x38 grows to at least 128 * 28 * 28 pixels.
  EXPECT_EQ(grid[0], 2);
  EXPECT_GE(grid[1] * grid[2] * 196, 128 * 28 * 28);
  EXPECT_EQ(item.lengths.input_rows, static_cast<uint64_t>(grid[0] * grid[1] * grid[2]));
  EXPECT_EQ(seconds, 1.0f);
  EXPECT_EQ(item.notes.frames_repeated, 0u);
}

TEST(Qwen2Vl, FramesThatTheDecodeLacksAreRepeatedAndCounted) {
  ProcessorSpec spec = Spec(Wire::kU8);
  auto processor = Processor::LoadMedia(spec, Limits{});
  Bytes bytes = Golden("video/h264.mp4");
  absl::StatusOr<MediaFacts> facts = (*processor)->Probe(Medium::kVideo, "mp4", bytes);
  ASSERT_TRUE(facts.ok());
  facts->num_frames = 48;  // the index was told of twice as many
  Item item = MakeFrom(**processor, Medium::kVideo, "mp4", bytes, *facts);
  ASSERT_TRUE(item.status.ok()) << item.status;
  EXPECT_EQ(item.notes.frames_repeated, 4u);
}

TEST(Qwen2Vl, SettingsThatAreNotImplementedAreNamed) {
  auto status = [](const std::string& folder) {
    return Processor::LoadMedia(Spec(Wire::kU8, folder), Limits{}).status();
  };
  EXPECT_TRUE(absl::IsNotFound(status("nothing")));
  EXPECT_TRUE(absl::IsInvalidArgument(status("whisper"))) << "has no image_processor_type";
  ProcessorSpec spec = Spec(Wire::kU8);
  spec.resampler = "nearest";
  EXPECT_TRUE(absl::IsInvalidArgument(Processor::LoadMedia(spec, Limits{}).status()));
}

}  // namespace
}  // namespace evenkeel::preprocess
