// Video through FFmpeg: facts from one pass over the packets, chosen frames as RGB8.
//
// Codecs are a tested list whose decoders give the same bytes on every CPU; others are Unimplemented. Packets
// that no chosen frame needs are not decoded (preprocess/video/video_index.h); the frames are those of a decode of
// everything. Width and height of facts are those of the stored frames; rotation metadata is reported there,
// in quarters, and applied where the caller asks for it.
//
// Thread safety: free functions without state; one decoder thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"
#include "preprocess/image/image.h"
#include "preprocess/video/frame_loader.h"

namespace evenkeel::preprocess {

// Facts of a video as `loader` has them: dimensions, rotation, frames, average rate, duration. Errors as
// Measurer::Probe.
absl::StatusOr<MediaFacts> ProbeVideo(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits, FrameLoader loader);

// The facts of frames that rotation metadata has been applied to: sides swapped by a quarter turn, no
// rotation left.
MediaFacts Upright(const MediaFacts& facts);

// Gives all rows of a frame, RGB from top to bottom, to a sink. Errors are those of the frame.
using FrameRows = absl::FunctionRef<absl::Status(BandSink& sink)>;
// Called with the position in the list of chosen frames and the frame, which is there during the call.
// Returns what went wrong, the frame's errors among it.
using FrameSink = std::function<absl::Status(size_t position, FrameRows rows)>;
// Puts the numbers of the wanted frames, ascending, in the order of presentation, into `chosen`, which is
// empty. `times`: when each frame is shown and when the last one ends; empty where that is not known, or the
// rate is constant. (Both are functions that copying would make allocate: pass std::ref of larger lambdas.)
using FrameChooser = std::function<void(std::span<const int64_t> times, std::vector<uint32_t>& chosen)>;

struct VideoWish {
  FrameChooser choose;
  bool upright = false;  // apply rotation metadata; the sink's frames have the sides of Upright(facts)
  FrameLoader loader = FrameLoader::kTorchcodec;  // that of the facts
};

// Decodes and hands out the chosen frames. Where the stream does not deliver one, the frame before it (else
// the one after it) stands for it; `repeated` counts those. DataLoss: no frame at all, a damaged one, or one
// of other dimensions than the facts say; ResourceExhausted; Unimplemented; whatever the sink returns.
absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, const VideoWish& wish, const FrameSink& sink,
                         uint64_t* repeated);
// The same for frames that are known already, as they are stored.
absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, std::span<const uint32_t> chosen, FrameLoader loader,
                         const FrameSink& sink, uint64_t* repeated);

}  // namespace evenkeel::preprocess
