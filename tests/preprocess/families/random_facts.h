// Facts of items of every size, and what lengths must be for any of them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <vector>

#include "preprocess/families/family.h"
#include "preprocess/text/positions.h"
#include "tests/preprocess/items.h"
#include "tests/usual_phases.h"

namespace evenkeel::preprocess {

inline MediaFacts RandomFacts(Medium medium, Dice& dice) {
  MediaFacts facts;
  facts.medium = medium;
  const uint64_t most = dice.Roll(2) == 0 ? 200 : 5000;
  facts.width = static_cast<uint32_t>(1 + dice.Roll(most));
  facts.height = static_cast<uint32_t>(1 + dice.Roll(most));
  facts.num_frames = static_cast<uint32_t>(1 + dice.Roll(dice.Roll(2) == 0 ? 40 : 20000));
  facts.pictures_in_sample = facts.num_frames;
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
inline void ExpectOneNumber(const MediaFamily& family, const MediaFacts& facts) {
  absl::StatusOr<ItemLengths> lengths = family.Measure(facts);
  std::vector<PlaceholderRun> runs;
  ASSERT_EQ(lengths.ok(), family.Placeholders(facts, runs).ok());
  if (!lengths.ok()) return;
  uint64_t rows = 0;
  for (const PlaceholderRun& run : runs) {
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
  if (UsualPhaseOf(facts.medium) != kVisionPhase || fields.size() < 2) return;
  if (!family.fields(facts.medium)[1].name.ends_with("grid_thw")) return;
  int64_t grid[3];
  ASSERT_EQ(fields[1].size(), sizeof(grid));
  std::memcpy(grid, fields[1].data(), sizeof(grid));
  EXPECT_EQ(static_cast<uint64_t>(grid[0] * grid[1] * grid[2]), lengths->input_rows);
}

}  // namespace evenkeel::preprocess
