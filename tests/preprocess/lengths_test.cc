// Lengths from headers and lengths of what is delivered are one thing, for every family and medium.
#include <gtest/gtest.h>

#include "preprocess/family.h"
#include "preprocess/text/positions.h"
#include "tests/preprocess/family_golden.h"

namespace evenkeel {
namespace {

MediaFacts RandomFacts(Medium medium, Dice& dice) {
  MediaFacts facts;
  facts.medium = medium;
  const uint64_t most = dice.Roll(2) == 0 ? 200 : 5000;
  facts.width = static_cast<uint32_t>(1 + dice.Roll(most));
  facts.height = static_cast<uint32_t>(1 + dice.Roll(most));
  facts.num_frames = static_cast<uint32_t>(1 + dice.Roll(dice.Roll(2) == 0 ? 40 : 20000));
  constexpr uint32_t kRates[][2] = {{24, 1}, {25, 1}, {30000, 1001}, {60, 1}, {1, 1}, {1, 3}, {12345, 678}};
  const auto& rate = kRates[dice.Roll(std::size(kRates))];
  facts.fps_num = rate[0];
  facts.fps_den = rate[1];
  constexpr uint32_t kSampleRates[] = {8000, 16000, 22050, 44100, 48000};
  facts.sample_rate = kSampleRates[dice.Roll(std::size(kSampleRates))];
  facts.channels = 1;
  facts.num_samples = dice.Roll(dice.Roll(2) == 0 ? 3000 : 3000000);
  return facts;
}

// What MediaFamily promises of any facts: rows of the fields, placeholders and grids say the same number.
void ExpectOneNumber(const MediaFamily& family, const MediaFacts& facts) {
  absl::StatusOr<ItemLengths> lengths = family.Measure(facts);
  absl::StatusOr<std::vector<PlaceholderRun>> runs = family.Placeholders(facts);
  ASSERT_EQ(lengths.ok(), runs.ok());
  if (!lengths.ok()) return;
  uint64_t rows = 0;
  for (const PlaceholderRun& run : *runs) {
    rows += run.rows;
    if (run.grid.t != 0) {
      EXPECT_EQ(*MergedTokens(run.grid, family.merge_size()), run.rows);
    }
  }
  EXPECT_EQ(rows, lengths->output_rows);
  EXPECT_GT(lengths->output_rows, 0u);
  EXPECT_GT(lengths->cost_length, 0u);
  // FillInvalid writes grids and counts as Produce does, and checks its spans against the planned lengths.
  uint64_t bytes = 0;
  for (const FieldSpec& field : family.fields(facts.medium)) bytes += field.num_bytes(*lengths);
  if (bytes > (1u << 20)) return;
  std::vector<Bytes> fields;
  for (const FieldSpec& field : family.fields(facts.medium)) fields.emplace_back(field.num_bytes(*lengths));
  std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  ASSERT_TRUE(family.FillInvalid({facts.medium, "", {}, facts, *lengths}, spans).ok());
  if (PhaseOf(facts.medium) != Phase::kVision || fields.size() < 2) return;
  int64_t grid[3];
  std::memcpy(grid, fields[1].data(), sizeof(grid));
  EXPECT_EQ(static_cast<uint64_t>(grid[0] * grid[1] * grid[2]), lengths->input_rows);
}

TEST(Lengths, OfHeadersFieldsAndPlaceholdersAreOneForEveryFamily) {
  Dice dice(11);
  for (const char* name : {"clip", "internvl", "llava", "llava-pad", "qwen2-vl", "qwen2_5-omni", "qwen2_5-vl",
                           "qwen3-omni", "qwen3-vl", "siglip"}) {
    SCOPED_TRACE(name);
    const ProcessorSpec spec = VisionSpec(name);
    auto family = LoadVisionFamily(spec.vision, spec, Limits{});
    ASSERT_TRUE(family.ok()) << family.status();
    for (int i = 0; i < 1500; ++i) {
      ExpectOneNumber(**family, RandomFacts(i % 2 == 0 ? Medium::kImage : Medium::kVideo, dice));
    }
  }
  for (const char* name : {"qwen2-audio", "qwen2_5-omni", "qwen3-omni", "whisper"}) {
    SCOPED_TRACE(name);
    ProcessorSpec spec;
    spec.audio = GoldenPath(std::string("processors/") + name);
    auto family = LoadAudioFamily(spec.audio, spec, Limits{});
    ASSERT_TRUE(family.ok()) << family.status();
    for (int i = 0; i < 1500; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kAudio, dice));
  }
}

TEST(Lengths, OfDecodedItemsAreThoseOfTheirHeaders) {
  for (const char* name : {"clip", "internvl", "llava-pad", "qwen2-vl", "qwen3-vl", "siglip"}) {
    for (const char* picture : {"dot", "high", "scene", "square", "wide"}) {
      Item item = Make(VisionSpec(name), Medium::kImage, std::string("pictures/") + picture + ".png");
      EXPECT_TRUE(item.status.ok()) << name << " " << picture << " " << item.status;
    }
  }
  for (const char* name : {"qwen2-vl", "qwen3-vl"}) {
    Item item = Make(VisionSpec(name), Medium::kVideo, "video/vp9.webm");
    EXPECT_TRUE(item.status.ok()) << name << " " << item.status;
  }
}

}  // namespace
}  // namespace evenkeel
