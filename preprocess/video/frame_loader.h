// Whose frames a job's videos are: the loaders that training code reads videos with. They agree on most
// pixels and differ in the stream they take, the frames they count, the rate they give and the filter with
// which they enlarge chroma.
//
//   torchcodec  0.17, which transformers 5 uses. FFmpeg's best stream; every packet that is not discarded
//               counts as a frame; the rate is frames over their span
//   pyav        18. The first video stream; the container's average rate; frames are not turned
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

// The loader of a job's word; empty: torchcodec. InvalidArgument: another word.
absl::StatusOr<FrameLoader> FrameLoaderOf(std::string_view word);
std::string_view FrameLoaderName(FrameLoader loader);

}  // namespace evenkeel::preprocess
