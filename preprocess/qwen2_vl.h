// Qwen2-VL and Qwen2.5-VL: images and video. Also the images of other processors of the same image processor.
//
// The source of every rule is transformers' models/qwen2_vl/image_processing_qwen2_vl.py, and for the choice
// and the size of video frames qwen-vl-utils' vision_process.py.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/words.h"
#include "preprocess/resize_pil.h"

namespace evenkeel {

// Sides that are multiples of `factor` with min_pixels <= area <= max_pixels, about the same aspect ratio.
// Rounds half to even. `at_least_factor`: the rule of qwen-vl-utils, whose first rounding never gives 0.
// InvalidArgument: a side more than 200 times the other.
absl::StatusOr<ImageSize> SmartResize(uint32_t height, uint32_t width, uint32_t factor, double min_pixels,
                                      double max_pixels, bool at_least_factor);

}  // namespace evenkeel
