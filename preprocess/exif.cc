#include "preprocess/exif.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "preprocess/png_chunk.h"

namespace evenkeel {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kExifPrefix("Exif\0\0", 6);

bool StartsWith(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// `size` bytes from `at`; the caller has checked that they are there.
uint64_t Number(Bytes bytes, size_t at, size_t size, bool big_endian) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t from = big_endian ? at + i : at + size - 1 - i;
    value = value << 8 | std::to_integer<uint64_t>(bytes[from]);
  }
  return value;
}

// Of a type of whole numbers as Pillow reads them: short and long with and without a sign, signed bytes,
// places of directories; 0 of any other. The tag is of shorts, but some write longs.
uint64_t WholeNumberBytes(uint64_t type) {
  return type == 3 || type == 8 ? 2 : type == 4 || type == 9 || type == 13 ? 4 : type == 6 ? 1 : 0;
}

// TIFF: byte order, 42, offset of the first directory; a directory is a count and entries of 12 bytes: tag,
// type, count, value.
uint32_t TiffOrientation(Bytes tiff) {
  constexpr uint64_t kOrientation = 0x0112;
  for (int prefix = 0; prefix < 2 && StartsWith(tiff, kExifPrefix); ++prefix)  // as many as Pillow takes away
    tiff = tiff.subspan(kExifPrefix.size());
  const bool big = StartsWith(tiff, "MM");
  if (tiff.size() < 8 || (!big && !StartsWith(tiff, "II")) || Number(tiff, 2, 2, big) != 42) return 1;
  const uint64_t directory = Number(tiff, 4, 4, big);
  if (directory + 2 > tiff.size()) return 1;
  const uint64_t count = Number(tiff, directory, 2, big);
  for (uint64_t i = 0, at = directory + 2; i < count && at + 12 <= tiff.size(); ++i, at += 12) {
    if (Number(tiff, at, 2, big) != kOrientation) continue;
    const uint64_t size = WholeNumberBytes(Number(tiff, at + 2, 2, big));
    const uint64_t bytes = size * Number(tiff, at + 4, 4, big);
    if (bytes == 0 || bytes > 4) return 1;  // more stand elsewhere
    const uint64_t value = Number(tiff, at + 8, size, big);
    return value >= 1 && value <= 8 ? static_cast<uint32_t>(value) : 1;
  }
  return 1;
}

// Of a JPEG's marker, as Pillow reads them: of those before the scans, all but the stuffed 0, start, end,
// restarts and extensions. (Those that no list has make it give up, as the decoder does.)
bool HasLength(uint64_t marker) {
  constexpr uint64_t kFirst = 0xc0, kExtension = 0xc8, kRestart = 0xd0, kEnd = 0xd9, kApp15 = 0xef,
                     kComment = 0xfe;
  if (marker == kComment) return true;
  return marker >= kFirst && marker <= kApp15 && marker != kExtension && (marker < kRestart || marker > kEnd);
}

}  // namespace

uint32_t JpegOrientation(Bytes file) {
  constexpr uint64_t kMark = 0xff, kApp1 = 0xe1, kStartOfScan = 0xda;
  Bytes first;                   // all of it, where there is one segment
  std::vector<std::byte> whole;  // of several, which Pillow joins
  for (size_t at = 2; at + 2 <= file.size();) {
    const uint64_t marker = Number(file, at + 1, 1, true);
    // Bytes that are no marker are passed over, by the library, too.
    if (Number(file, at, 1, true) != kMark || marker == kMark) {
      ++at;
      continue;
    }
    at += 2;
    if (!HasLength(marker)) continue;
    if (at + 2 > file.size()) break;
    const uint64_t length = Number(file, at, 2, true);
    if (marker == kStartOfScan || length < 2 || length > file.size() - at) break;
    const Bytes body = file.subspan(at + 2, length - 2);
    at += length;
    if (marker != kApp1 || !StartsWith(body, kExifPrefix)) continue;
    if (first.empty()) {
      first = body;
      continue;
    }
    if (whole.empty()) whole.assign(first.begin(), first.end());
    const Bytes rest = body.subspan(kExifPrefix.size());
    whole.insert(whole.end(), rest.begin(), rest.end());
  }
  return TiffOrientation(whole.empty() ? first : Bytes(whole));
}

uint32_t PngOrientation(Bytes file) {
  const std::optional<Bytes> exif = LastPngChunk(file, "eXIf");
  return exif ? TiffOrientation(*exif) : 1;
}

uint32_t WebpOrientation(Bytes file) {
  constexpr size_t kRiff = 12, kHead = 8;
  for (size_t at = kRiff; at + kHead <= file.size();) {
    const uint64_t length = Number(file, at + 4, 4, false);
    if (length > file.size() - at - kHead) return 1;
    if (StartsWith(file.subspan(at), "EXIF")) return TiffOrientation(file.subspan(at + kHead, length));
    at += kHead + length + length % 2;
  }
  return 1;
}

}  // namespace evenkeel
