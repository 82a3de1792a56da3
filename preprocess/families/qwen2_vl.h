// Qwen2-VL and Qwen2.5-VL: the sizes of their pictures, and the rules of their videos, which other families
// share.
//
// The source is transformers' models/qwen2_vl/image_processing_qwen2_vl.py, and for video frames
// qwen-vl-utils' vision_process.py.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// What several families call smart_resize. No side is below `least` when it is rounded, nor below `least_shrunk` when the
// picture is reduced.
struct SmartRule {
  double factor = 0, min_pixels = 0, max_pixels = 0;
  double least = 0, least_shrunk = 0;
};
// The sides of a picture by the rule, whole numbers, unchecked.
struct SmartSides {
  double height = 0, width = 0;
};
SmartSides SidesBy(const SmartRule& rule, uint32_t height, uint32_t width);

// Sides that are multiples of `factor` with min_pixels <= area <= max_pixels and about the same aspect ratio.
// Rounds half to even. `at_least_factor`: the rule of qwen-vl-utils, whose first rounding never gives 0, but
// whose reduction may; it then fails: InvalidArgument. InvalidArgument: a side is more than 200 times the
// other.
absl::StatusOr<ImageSize> SmartResize(uint32_t height, uint32_t width, uint32_t factor, double min_pixels,
                                      double max_pixels, bool at_least_factor);

// The size of a frame by qwen-vl-utils' fetch_video: within the bounds of a frame (empty: its defaults of 128 and 768
// tokens, of which the second can only be lowered), and within its share of a video's total.
struct UtilsBounds {
  std::optional<uint64_t> min_pixels;
  std::optional<uint64_t> max_pixels;
};
absl::StatusOr<ImageSize> UtilsFrameSize(ImageSize native, uint32_t num_frames, uint32_t factor,
                                         const UtilsBounds& bounds);

// The size of a picture that is not resized (do_resize: false). InvalidArgument: a side is not a multiple of
// `factor`, on which the processor fails.
absl::StatusOr<ImageSize> UnchangedSize(ImageSize size, uint32_t factor);

// Makes `vision` accept videos by the rules of Qwen2-VL's video processor. `frame_pixels`: bounds of a frame
// that override the file's, as in the Omni models' processors; {0, 0}: the file's bounds. If the folder has
// no video processor, videos are refused.
struct FramePixels {
  uint64_t least = 0;
  uint64_t most = 0;
};
absl::Status TakeQwen2Videos(const FamilySource& source, FramePixels frame_pixels, QwenVision& vision);

}  // namespace evenkeel::preprocess
