// The header of a frame of MPEG audio: what kind of frame it is, and where the next one begins.
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
  size_t length = 0;  // of the whole frame, in bytes; 0: layers I and II, which are not decoded

  // Whether frames of a stream may follow one another so.
  bool IsLike(const MpegAudioHeader& other) const {
    return layer == other.layer && rate == other.rate && channels == other.channels;
  }
};

// ISO/IEC 11172-3, 2.4.2.3, and 13818-3: nullopt where there is no sync word or something is reserved. Bit
// rates of one's own ("free format") are not decoded, and no header here.
std::optional<MpegAudioHeader> ParseMpegAudioHeader(std::span<const uint8_t> bytes);

// Where a stream of layer III begins that may have been cut out of a longer one, within a frame: the first
// header behind which, at the frame's end, another of its kind follows, or the bytes end. nullopt: not within
// the 64 KiB that FFmpeg's demuxer looks at.
std::optional<size_t> FindMp3(std::span<const uint8_t> bytes);

}  // namespace evenkeel::preprocess
