// The loader whose frames a job's videos have: one of those that training code reads videos with. They agree
// on most pixels, but differ in the stream they choose, the frames they count, the frame rate they report and
// the filter with which they enlarge chroma.
//
//   torchcodec  0.17, used by transformers 5. FFmpeg's best stream; every packet that is not discarded
//               counts as a frame; the rate is the number of frames over their span
//   pyav        18. The first video stream; the container's average rate; rotation is not applied
//   decord      0.6. FFmpeg's best stream; the container's average rate
//   accurate    none of them: swscale's accurate conversion; the first default stream; frames that are
//               shown; the container's rate unless the frames' times contradict it
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace evenkeel::preprocess {

enum class FrameLoader : uint8_t { kTorchcodec, kPyav, kDecord, kAccurate };

// Parses a value of processor.frames; empty: torchcodec. InvalidArgument: an unknown value.
absl::StatusOr<FrameLoader> FrameLoaderOf(std::string_view word);
std::string_view FrameLoaderName(FrameLoader loader);

}  // namespace evenkeel::preprocess
