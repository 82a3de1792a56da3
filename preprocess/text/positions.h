// Positions of a sequence's tokens for M-RoPE: time, height and width, as Qwen2-VL and Qwen2.5-VL number
// them.
//
// Text, audio and marks count on, alike in all three rows. An item on a grid starts at the next position s:
// grid t at s + t * interval, row y of the merged grid at s + y, column x at s + x. What follows it continues
// at s + max(h, w) / merge, however long the item is in time (the rule of `get_rope_index` in transformers
// 5), or, as the Omni models number, after the last of all these.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

// The placeholders of one item on a grid.
struct GridSpan {
  uint64_t begin = 0;  // token
  uint64_t tokens = 0;
  Medium medium = Medium::kImage;
  VisionGrid grid;
};

// Placeholders of a grid after the merge. InvalidArgument: sides that are no multiples of `merge_size`.
absl::StatusOr<uint64_t> MergedTokens(const VisionGrid& grid, uint32_t merge_size);

// Writes [3, length] into `positions`. `spans` ascend and do not overlap, and have tokens ==
// MergedTokens(grid). tokens_per_second: see SequenceStyle. `after_time`: what follows an item has later
// positions than its last grid, too, and times are those of the Omni models, seconds first.
void WritePositions(std::span<const GridSpan> spans, uint32_t merge_size, uint32_t tokens_per_second,
                    std::span<int64_t> positions, bool after_time = false);

}  // namespace evenkeel::preprocess
