#include "preprocess/audio_mpeg.h"

#include <mpg123.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel {
namespace {

constexpr size_t kSamples = 576;  // of a frame
// Kbit/s by the header's index, of MPEG-2's layer III; 0: a rate of the file's own, which is not decoded.
constexpr std::array<size_t, 15> kKilobits = {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160};
constexpr size_t kLargestFrame = 3 * kKilobits.back() + 1;

// ISO/IEC 13818-3, 2.4.2.3: the length of a frame that is MPEG-2, layer III, 24 kHz and has so many channels;
// 0 where it is not.
size_t FrameLength(std::span<const uint8_t> frame, int channels) {
  if (frame.size() < 4 || frame[0] != 0xff || (frame[1] & 0xfe) != 0xf2) return 0;
  const size_t bit_rate = frame[2] >> 4, padding = frame[2] >> 1 & 1;
  if ((frame[2] >> 2 & 3) != 1 || bit_rate == 0 || bit_rate >= kKilobits.size()) return 0;
  if ((frame[3] >> 6 == 3 ? 1 : 2) != channels) return 0;
  return 3 * kKilobits[bit_rate] + padding;  // 72 bytes for each bit of a sample
}

absl::Status Failed(mpg123_handle* handle) {
  return absl::InternalError(absl::StrCat("libmpg123: ", mpg123_strerror(handle)));
}

}  // namespace

void Mpeg24KhzDecoder::Free::operator()(mpg123_handle* handle) const { mpg123_delete(handle); }

absl::StatusOr<Mpeg24KhzDecoder> Mpeg24KhzDecoder::Open(int channels) {
  if (channels != 1 && channels != 2) {
    return absl::DataLossError(absl::StrCat("MP3 of ", channels, " channels"));
  }
  Mpeg24KhzDecoder decoder;
  decoder.channels_ = channels;
  // The one in plain C: the others are chosen by the processor, and round otherwise.
  int code = MPG123_OK;
  decoder.handle_.reset(mpg123_new("generic", &code));
  mpg123_handle* handle = decoder.handle_.get();
  if (handle == nullptr) {
    return absl::InternalError(absl::StrCat("libmpg123's decoder 'generic': ", mpg123_plain_strerror(code)));
  }
  // It is given whole frames, and what is not shown at the ends is not its affair.
  constexpr long kFlags =
      MPG123_QUIET | MPG123_NO_RESYNC | MPG123_NO_READAHEAD | MPG123_IGNORE_INFOFRAME | MPG123_SKIP_ID3V2;
  const int layout = channels == 1 ? MPG123_MONO : MPG123_STEREO;
  if (mpg123_param(handle, MPG123_FLAGS, kFlags, 0) != MPG123_OK ||
      mpg123_param(handle, MPG123_RVA, MPG123_RVA_OFF, 0) != MPG123_OK ||
      mpg123_format_none(handle) != MPG123_OK ||
      mpg123_format(handle, kRate, layout, MPG123_ENC_FLOAT_32) != MPG123_OK ||
      mpg123_open_feed(handle) != MPG123_OK) {
    return Failed(handle);
  }
  return decoder;
}

absl::StatusOr<std::span<const float>> Mpeg24KhzDecoder::Decode(std::span<const uint8_t> packet) {
  const auto begin = std::find_if(packet.begin(), packet.end(), [](uint8_t byte) { return byte != 0; });
  const std::span<const uint8_t> given(begin, packet.end());
  const size_t length = FrameLength(given, channels_);
  if (length == 0) {
    return absl::DataLossError(absl::StrCat("MP3: a frame that is not MPEG-2 of ", kRate, " Hz and ",
                                            channels_, channels_ == 1 ? " channel" : " channels"));
  }
  std::array<uint8_t, kLargestFrame> frame{};
  std::copy_n(given.begin(), std::min(given.size(), length), frame.begin());
  if (mpg123_feed(handle_.get(), frame.data(), length) != MPG123_OK) return Failed(handle_.get());
  unsigned char* samples = nullptr;
  size_t size = 0;
  int code = MPG123_NEW_FORMAT;  // before the first frame, and where its mode changes
  for (int tries = 0; tries < 2 && code == MPG123_NEW_FORMAT; ++tries) {
    code = mpg123_decode_frame(handle_.get(), nullptr, &samples, &size);
  }
  if (code != MPG123_OK || size != kSamples * static_cast<size_t>(channels_) * sizeof(float)) {
    return absl::DataLossError(absl::StrCat(
        "MP3: ", code == MPG123_ERR ? mpg123_strerror(handle_.get()) : mpg123_plain_strerror(code)));
  }
  return std::span(reinterpret_cast<const float*>(samples), size / sizeof(float));
}

}  // namespace evenkeel
