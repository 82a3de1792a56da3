// Qwen2-VL and Qwen2.5-VL: how large pictures become, and what others take of their videos.
//
// The source is transformers' models/qwen2_vl/image_processing_qwen2_vl.py, and for video frames
// qwen-vl-utils' vision_process.py.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// Sides that are multiples of `factor` with min_pixels <= area <= max_pixels, about the same aspect ratio.
// Rounds half to even. `at_least_factor`: the rule of qwen-vl-utils, whose first rounding never gives 0, but
// whose reduction may, which it then fails on: InvalidArgument. InvalidArgument: a side more than 200 times
// the other.
absl::StatusOr<ImageSize> SmartResize(uint32_t height, uint32_t width, uint32_t factor, double min_pixels,
                                      double max_pixels, bool at_least_factor);

// The size of what keeps its own, as do_resize: false has it. InvalidArgument: its sides are no multiples of
// `factor`, on which the processor fails.
absl::StatusOr<ImageSize> UnchangedSize(ImageSize size, uint32_t factor);

// Makes `vision` take videos by the rules of Qwen2-VL's video processor. `frame_pixels`: what a frame is
// bounded by whatever the file says, as by the Omni models' processors; {0, 0}: the file's bounds. Where the
// folder has no video processor it takes none.
struct FramePixels {
  uint64_t least = 0;
  uint64_t most = 0;
};
absl::Status TakeQwen2Videos(const FamilySource& source, FramePixels frame_pixels, QwenVision& vision);

}  // namespace evenkeel::preprocess
