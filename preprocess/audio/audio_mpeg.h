// Decodes MP3 of 24 kHz by libmpg123, packet by packet, because FFmpeg before 6.1 has a wrong band table for
// that rate (docs/decisions/0013-mp3-of-24-khz.md).
//
// Thread safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct mpg123_handle_struct;

namespace evenkeel::preprocess {

// A stream of MPEG-2, layer III, 24 kHz frames.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto decoder, Mpeg24KhzDecoder::Open(2));
//     EVENKEEL_ASSIGN_OR_RETURN(std::span<const float> samples, decoder.Decode(packet));
class Mpeg24KhzDecoder {
 public:
  static constexpr int kRate = 24000;  // Hz

  // `channels`: 1 or 2. DataLoss: another number. Internal: the library lacks its portable decoder.
  static absl::StatusOr<Mpeg24KhzDecoder> Open(int channels);

  int channels() const { return channels_; }

  // The 576 samples of a frame with interleaved channels, valid until the next call. Zero bytes before the
  // frame are skipped, and bytes cut off by the file's end count as zero. A frame whose bits begin in a
  // packet that is missing is silent. DataLoss: another kind of frame, or other channels.
  absl::StatusOr<std::span<const float>> Decode(std::span<const uint8_t> packet);

 private:
  struct Free {
    void operator()(mpg123_handle_struct* handle) const;
  };
  std::unique_ptr<mpg123_handle_struct, Free> handle_;
  int channels_ = 0;
};

}  // namespace evenkeel::preprocess
