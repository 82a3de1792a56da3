// Positions of a sequence's tokens for M-RoPE: time, height and width, as in Qwen2-VL and Qwen2.5-VL.
//
// Text, audio and special tokens count up, equally in all three rows. An item on a grid starts at the next
// position s: grid t is at s + t * interval, row y of the merged grid at s + y, column x at s + x. The text
// after it continues at s + max(h, w) / merge, however long the item is in time (`get_rope_index` of
// transformers 5), or, in the Omni models, after the largest of all these positions.
//
// The audio of a video, whose tokens stand between the video's, counts up from s, too; the text after both continues after
// the last token of them.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

// Consecutive tokens of a video or of its audio.
struct AlternatingRun {
  uint64_t tokens = 0;
  bool is_audio = false;
};

// The placeholders of one item on a grid.
struct GridSpan {
  uint64_t begin = 0;   // index of its first token
  uint64_t tokens = 0;  // of the grid
  Medium medium = Medium::kImage;
  VisionGrid grid;
  std::vector<AlternatingRun> runs = {};  // of a video with its audio: all tokens of both
};

struct PositionRules {
  uint32_t merge_size = 1;
  uint32_t tokens_per_second = 0;  // SequenceStyle
  // The Omni models: text after an item also follows its last grid in time, and times are computed in another order of
  // multiplication.
  bool after_time = false;
  // Qwen2.5-Omni: the tokens before and after a video with its audio have the positions of their outer neighbours.
  bool shares_end_positions = false;
};

// The number of placeholders of a grid after merging merge_size x merge_size patches. InvalidArgument: a side
// is not a multiple of `merge_size`.
absl::StatusOr<uint64_t> MergedTokens(const VisionGrid& grid, uint32_t merge_size);

// Writes [3, length] into `positions`, row-major. `spans` ascend, do not overlap, and have tokens ==
// MergedTokens(grid).
void WritePositions(std::span<const GridSpan> spans, const PositionRules& rules,
                    std::span<int64_t> positions);

}  // namespace evenkeel::preprocess
