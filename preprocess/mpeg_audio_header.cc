// Parses headers of MPEG audio frames, and finds the first one of an MP3 that was cut out of a longer one.
#include "preprocess/mpeg_audio_header.h"

#include <algorithm>
#include <array>

namespace evenkeel::preprocess {
namespace {

constexpr size_t kMaxBefore = 64 << 10;

// Layer III's kbit/s by the header's index: MPEG-1, then MPEG-2 and 2.5.
constexpr std::array<std::array<size_t, 15>, 2> kKilobits = {
    {{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
     {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}}};

}  // namespace

std::optional<MpegAudioHeader> ParseMpegAudioHeader(std::span<const uint8_t> bytes) {
  if (bytes.size() < 4 || bytes[0] != 0xff || (bytes[1] & 0xe0) != 0xe0) return std::nullopt;
  const int version = bytes[1] >> 3 & 3, layer = 4 - (bytes[1] >> 1 & 3);
  const size_t bit_rate = bytes[2] >> 4, rate = bytes[2] >> 2 & 3;
  if (version == 1 || layer == 4 || bit_rate == 0 || bit_rate == 15 || rate == 3) return std::nullopt;
  MpegAudioHeader header;
  header.layer = layer;
  // MPEG-2 has half of MPEG-1's sample rates, MPEG-2.5 (version 0) half of MPEG-2's.
  header.rate = std::array{44100, 48000, 32000}[rate] >> (version == 3 ? 0 : version == 2 ? 1 : 2);
  header.channels = bytes[3] >> 6 == 3 ? 1 : 2;
  if (layer == 3) {
    // The bytes of a frame: its duration (1152 or 576 samples / rate) times the bit rate / 8, rounded down,
    // and a byte of padding if bit 1 of the third byte is set.
    const size_t eighths = version == 3 ? 144 : 72;  // of the number of samples
    const size_t kilobits = kKilobits[version == 3 ? 0 : 1][bit_rate];
    header.length = eighths * kilobits * 1000 / static_cast<size_t>(header.rate) + (bytes[2] >> 1 & 1);
  }
  return header;
}

// The sync word alone, 11 bits, also occurs in other data, so another header of the same kind (or the end)
// must follow where the frame ends.
std::optional<size_t> FindMp3(std::span<const uint8_t> bytes) {
  for (size_t at = 0; at < std::min(bytes.size(), kMaxBefore); ++at) {
    if (bytes[at] != 0xff) continue;
    const std::optional<MpegAudioHeader> header = ParseMpegAudioHeader(bytes.subspan(at));
    if (!header.has_value() || header->layer != 3 || header->length > bytes.size() - at) continue;
    const std::span<const uint8_t> behind = bytes.subspan(at + header->length);
    const std::optional<MpegAudioHeader> next = ParseMpegAudioHeader(behind);
    if (behind.empty() || (next.has_value() && next->IsLike(*header))) return at;
  }
  return std::nullopt;
}

}  // namespace evenkeel::preprocess
