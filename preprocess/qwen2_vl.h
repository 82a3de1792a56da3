// Qwen2-VL and Qwen2.5-VL: images and video. Also the images of other processors of the same image processor.
//
// The source of every rule is transformers' models/qwen2_vl/image_processing_qwen2_vl.py, and for the choice
// and the size of video frames qwen-vl-utils' vision_process.py.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/words.h"
#include "preprocess/resize_pil.h"

namespace evenkeel {

// Sides that are multiples of `factor` with min_pixels <= area <= max_pixels, about the same aspect ratio.
// Rounds half to even. `at_least_factor`: the rule of qwen-vl-utils, whose first rounding never gives 0.
// InvalidArgument: a side more than 200 times the other.
absl::StatusOr<ImageSize> SmartResize(uint32_t height, uint32_t width, uint32_t factor, double min_pixels,
                                      double max_pixels, bool at_least_factor);

struct FrameRule {
  double fps = 2;
  uint32_t min_frames = 4;
  uint32_t max_frames = 768;
};
// How many frames of `total` are taken: an even number. InvalidArgument: fewer than two frames.
absl::StatusOr<uint32_t> NumChosenFrames(uint32_t total, double video_fps, const FrameRule& rule);
// `count` numbers from 0 to total - 1, evenly spaced, each rounded half to even, in f64.
std::vector<uint32_t> ChosenFrames(uint32_t total, uint32_t count);

}  // namespace evenkeel
