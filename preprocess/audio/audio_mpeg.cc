// Feeds single MP3 frames to libmpg123's portable decoder. The only file that includes it.
#include "preprocess/audio/audio_mpeg.h"

#include <mpg123.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/mpeg_audio_header.h"

namespace evenkeel::preprocess {
namespace {

constexpr size_t kSamples = 576;       // of a frame
constexpr size_t kLargestFrame = 481;  // bytes of a frame at 160 kbit/s with padding

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
  // The decoder in plain C. The others are chosen by CPU and round differently.
  int code = MPG123_OK;
  decoder.handle_.reset(mpg123_new("generic", &code));
  mpg123_handle* handle = decoder.handle_.get();
  if (handle == nullptr) {
    return absl::InternalError(absl::StrCat("libmpg123's decoder 'generic': ", mpg123_plain_strerror(code)));
  }
  // It gets whole frames. Samples at the ends that are not shown are removed by the caller.
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

// Zeros before the header are skipped; a frame that is cut off is completed with zeros.
absl::StatusOr<std::span<const float>> Mpeg24KhzDecoder::Decode(std::span<const uint8_t> packet) {
  const auto begin = std::find_if(packet.begin(), packet.end(), [](uint8_t byte) { return byte != 0; });
  const std::span<const uint8_t> given(begin, packet.end());
  const std::optional<MpegAudioHeader> header = ParseMpegAudioHeader(given);
  if (!header.has_value() || !header->IsLike({.layer = 3, .rate = kRate, .channels = channels_})) {
    return absl::DataLossError(absl::StrCat("MP3: a frame that is not of layer III, ", kRate, " Hz and ",
                                            channels_, channels_ == 1 ? " channel" : " channels"));
  }
  const size_t length = header->length;
  std::array<uint8_t, kLargestFrame> frame{};
  std::copy_n(given.begin(), std::min(given.size(), length), frame.begin());
  if (mpg123_feed(handle_.get(), frame.data(), length) != MPG123_OK) return Failed(handle_.get());
  unsigned char* samples = nullptr;
  size_t size = 0;
  int code = MPG123_NEW_FORMAT;  // before the first frame, and when its mode changes
  for (int tries = 0; tries < 2 && code == MPG123_NEW_FORMAT; ++tries) {
    code = mpg123_decode_frame(handle_.get(), nullptr, &samples, &size);
  }
  if (code != MPG123_OK || size != kSamples * static_cast<size_t>(channels_) * sizeof(float)) {
    return absl::DataLossError(absl::StrCat(
        "MP3: ", code == MPG123_ERR ? mpg123_strerror(handle_.get()) : mpg123_plain_strerror(code)));
  }
  return std::span(reinterpret_cast<const float*>(samples), size / sizeof(float));
}

}  // namespace evenkeel::preprocess
