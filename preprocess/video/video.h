// Video through FFmpeg: facts from one pass over the packets, and chosen frames as RGB8.
//
// Codecs are a tested list whose decoders give the same bytes on every CPU; others are Unimplemented. Packets
// that no chosen frame needs are not decoded (preprocess/video/video_index.h); the frames equal those of
// decoding everything. Width and height in the facts are those of the stored frames; rotation metadata is
// reported there, in quarter turns, and applied on request.
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

// Facts of a video as `loader` reports them: dimensions, rotation, frames, average rate, duration. Errors as
// Measurer::Probe.
absl::StatusOr<MediaFacts> ProbeVideo(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits, FrameLoader loader);

// The facts after rotation metadata was applied: sides are swapped by a quarter turn, and no rotation is
// left.
MediaFacts Upright(const MediaFacts& facts);

// Writes all rows of a frame, RGB from top to bottom, to a sink. Returns the errors of the frame.
using FrameRows = absl::FunctionRef<absl::Status(BandSink& sink)>;
// Called with the position in the list of chosen frames and the frame, which exists only during the call.
// Returns an error to stop, including those of the frame.
using FrameSink = std::function<absl::Status(size_t position, FrameRows rows)>;
// Appends the numbers of the wanted frames, ascending in presentation order, to `chosen`, which is empty.
// `times`: when each frame is shown and when the last one ends; empty if unknown or if the rate is constant.
// (Copying a large lambda into FrameSink or FrameChooser would allocate; pass std::ref of it.)
using FrameChooser = std::function<void(std::span<const int64_t> times, std::vector<uint32_t>& chosen)>;

struct VideoWish {
  FrameChooser choose;
  bool upright = false;  // apply rotation metadata; the sink's frames have the sides of Upright(facts)
  FrameLoader loader = FrameLoader::kTorchcodec;  // must be the one that the facts were probed with
};

// Decodes the chosen frames and passes them to `sink`. A frame that the stream does not deliver is replaced
// by the one before it (else the one after it); `repeated` counts those. DataLoss: no frame, a damaged one,
// or one whose dimensions differ from the facts; ResourceExhausted; Unimplemented; errors of the sink.
absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, const VideoWish& wish, const FrameSink& sink,
                         uint64_t* repeated);
// The same for given frame numbers, without applying rotation.
absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, std::span<const uint32_t> chosen, FrameLoader loader,
                         const FrameSink& sink, uint64_t* repeated);

}  // namespace evenkeel::preprocess
