// Video through FFmpeg: facts from one pass over the packets, chosen frames as RGB8.
//
// Codecs are a tested list whose decoders give the same bytes on every CPU; others are Unimplemented.
// Rotation metadata is reported in the facts and never applied, so width and height are those of the stored
// frames.
//
// Thread safety: free functions without state; one decoder thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"

namespace evenkeel {

// Facts of a video: dimensions, rotation, frames, average rate, duration. Errors as Measurer::Probe.
absl::StatusOr<MediaFacts> ProbeVideo(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits);

// Called with the position in the list of chosen frames and the frame, [height, width, 3], valid during the
// call.
using FrameSink = std::function<absl::Status(size_t position, std::span<const uint8_t> rgb)>;

// Decodes and hands out the frames with the numbers `chosen` (ascending, in the order of presentation). Where
// the stream delivers fewer, its last frame stands for the missing ones; `repeated` counts those. DataLoss:
// no frame at all, or frames of other dimensions than the facts say; ResourceExhausted; Unimplemented.
absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, std::span<const uint32_t> chosen, const FrameSink& sink,
                         uint64_t* repeated);

}  // namespace evenkeel
