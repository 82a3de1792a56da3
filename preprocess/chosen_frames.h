// The frames of a video item that a rule chooses, decoded: where frame_rules meets the decoder.
//
// Thread safety: a function without state.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/job.h"
#include "preprocess/frame_rules.h"
#include "preprocess/processor.h"
#include "preprocess/video.h"

namespace evenkeel {

// Hands `count` (of NumChosenFrames) frames to `sink`, turned as rotation metadata says where `upright`.
// Frames that stand for others are added to the request's notes. Errors are those of DecodeVideo.
absl::Status DecodeChosenFrames(const ItemRequest& request, const Limits& limits, const FrameChoice& frames,
                                uint32_t count, bool upright, const FrameSink& sink);

}  // namespace evenkeel
