// Qwen3-VL: the size of its videos' frames.
//
// The source is transformers' models/qwen3_vl/{video_processing,processing}_qwen3_vl.py.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

struct Qwen3VideoSize {
  uint32_t temporal_factor = 2;
  uint32_t factor = 32;     // sides are multiples of it
  uint64_t min_pixels = 0;  // bounds of all frames together
  uint64_t max_pixels = 0;
  // If not 0, a frame has at most this many tokens, or its even share of max_pixels if that is less.
  uint32_t max_frame_tokens = 0;
};

// The size of each of `num_frames` frames. Rounds half to even. InvalidArgument: fewer frames than the
// temporal factor, or a side more than 200 times the other.
absl::StatusOr<ImageSize> SmartResize3d(uint32_t num_frames, ImageSize native, const Qwen3VideoSize& rule);

}  // namespace evenkeel::preprocess
