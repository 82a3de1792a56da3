// Positions of a sequence's tokens for M-RoPE: time, height and width, as in Qwen2-VL and Qwen2.5-VL.
//
// Text, audio and special tokens count up, equally in all three rows. An item on a grid starts at the next
// position s: grid t is at s + t * interval, row y of the merged grid at s + y, column x at s + x. The text
// after it continues at s + max(h, w) / merge, however long the item is in time (`get_rope_index` of
// transformers 5), or, in the Omni models, after the largest of all these positions.
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
  uint64_t begin = 0;  // index of its first token
  uint64_t tokens = 0;
  Medium medium = Medium::kImage;
  VisionGrid grid;
};

// The number of placeholders of a grid after merging merge_size x merge_size patches. InvalidArgument: a side
// is not a multiple of `merge_size`.
absl::StatusOr<uint64_t> MergedTokens(const VisionGrid& grid, uint32_t merge_size);

// Writes [3, length] into `positions`, row-major. `spans` ascend, do not overlap, and have tokens ==
// MergedTokens(grid). `tokens_per_second`: see SequenceStyle. `after_time`, for the Omni models: text after
// an item also follows its last grid in time, and times are computed in another order of multiplication.
void WritePositions(std::span<const GridSpan> spans, uint32_t merge_size, uint32_t tokens_per_second,
                    std::span<int64_t> positions, bool after_time = false);

}  // namespace evenkeel::preprocess
