// Videos of VideoLLaMA3 and Ernie 4.5-VL: patches of single frames on a grid, next to the pictures of qwen_vision.h.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"

namespace evenkeel::preprocess {

struct SingleFrameClass {
  QwenVideoClass file;
  FrameRule rule = FrameRule::kQwen2VlProcessor;
  uint32_t min_frames = 0;
  uint32_t max_frames = 0;
  bool samples = true;         // by default
  bool needs_rate = false;     // sampling fails without a rate and a number
  bool shares_pixels = false;  // the maximum is of all frames together
  uint32_t frames_per_token = 1;
  // The key of what is not implemented, true by default, and what it does.
  std::string_view refused;
  std::string_view refused_does;
};

// Makes `vision` accept videos by the folder's video processor. Otherwise they are refused with the reason. The family
// adds style, times and fields.
absl::Status TakeSingleFrames(const FamilySource& source, const SingleFrameClass& usual, QwenVision& vision);

}  // namespace evenkeel::preprocess
