// Headers of MPEG audio frames: the kind of a frame, and where the next one begins.
//
// Thread safety: functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace evenkeel::preprocess {

struct MpegAudioHeader {
  int layer = 0;  // 1 to 3
  int rate = 0;   // Hz
  int channels = 0;
  size_t length = 0;  // bytes of the whole frame; 0: layers I and II, which are not decoded

  // Whether two frames can belong to the same stream.
  bool IsLike(const MpegAudioHeader& other) const {
    return layer == other.layer && rate == other.rate && channels == other.channels;
  }
};

// ISO/IEC 11172-3, 2.4.2.3, and 13818-3. nullopt: no sync word, or a reserved value. Free-format bit rates
// are not decoded and not accepted.
std::optional<MpegAudioHeader> ParseMpegAudioHeader(std::span<const uint8_t> bytes);

// The begin of a layer III stream that may have been cut out of a longer one within a frame: the first header
// after whose frame another of its kind follows or the bytes end. nullopt: none within the 64 KiB that
// FFmpeg's demuxer searches.
std::optional<size_t> FindMp3(std::span<const uint8_t> bytes);

}  // namespace evenkeel::preprocess
