// The frames of a video item that a rule chooses, decoded and resized: where frame_rules meets the decoder,
// and that the resizer.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/job.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/processor.h"
#include "preprocess/resize/resize.h"
#include "preprocess/video/frame_rules.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {

// Hands `count` (of NumChosenFrames) frames to `sink`, turned as rotation metadata says where `upright`.
// Frames that stand for others are added to the request's notes. Errors are those of DecodeVideo.
absl::Status DecodeChosenFrames(const ItemRequest& request, const Limits& limits, const FrameChoice& frames,
                                uint32_t count, bool upright, const FrameSink& sink);
// Resizes a frame of `native` pixels to `size` while its rows arrive, as `values` say. Errors are the
// frame's.
absl::Status ResizeFrame(FrameRows rows, ImageSize native, const PixelSettings& values, ImageSize size,
                         RowSink& out);

}  // namespace evenkeel::preprocess
