// Decodes and resizes the frames of a video item that a rule chooses: connects frame_rules, the decoder and
// the resizer.
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

// Puts into the digest's text which frames are chosen, by the job or by the file, and whether rotation metadata is applied.
void AddFrames(ConfigFile& config, const FrameChoice& frames, bool upright);

// Passes `count` (from NumChosenFrames) frames to `sink`; `upright` applies rotation metadata. Frames that
// replace missing ones are added to the request's notes. Errors: of DecodeVideo.
absl::Status DecodeChosenFrames(const ItemRequest& request, const Limits& limits, const FrameChoice& frames,
                                uint32_t count, bool upright, const FrameSink& sink);
// The size of a resized frame, and the part of it that is wanted.
struct FrameTarget {
  ImageSize resized;
  uint32_t left = 0;
  uint32_t top = 0;
  ImageSize window = {};  // 0x0: all of it
};

// Resizes a frame of `native` pixels while its rows arrive, with the filter of `values`. Errors: of the frame.
absl::Status ResizeFrame(FrameRows rows, ImageSize native, const PixelSettings& values,
                         const FrameTarget& target, RowSink& out);

// The same of the whole frame in float32, rounded once (FloatResizer, bicubic), whatever the filter of `values`: the
// resize of qwen-vl-utils' fetch_video.
absl::Status ResizeFrameInFloats(FrameRows rows, ImageSize native, const PixelSettings& values,
                                 ImageSize resized, RowSink& out);

}  // namespace evenkeel::preprocess
