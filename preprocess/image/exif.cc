// Finds the orientation tag in the EXIF and XMP blocks of JPEG, PNG and WebP files, in the order in which
// Pillow finds it.
#include "preprocess/image/exif.h"

#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "preprocess/image/png_chunk.h"

namespace evenkeel::preprocess {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kExifPrefix("Exif\0\0", 6);
constexpr std::string_view kXmpPrefix("http://ns.adobe.com/xap/1.0/\0", 29);  // in a JPEG
constexpr std::string_view kXmpKeyword("XML:com.adobe.xmp\0", 18);            // in a PNG

bool StartsWith(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// Reads `size` bytes from `at`. The caller has checked that they exist.
uint64_t Number(Bytes bytes, size_t at, size_t size, bool big_endian) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t from = big_endian ? at + i : at + size - 1 - i;
    value = value << 8 | std::to_integer<uint64_t>(bytes[from]);
  }
  return value;
}

// Bytes of one value if Pillow reads the type as a whole number: short and long with and without sign, signed
// byte, offset of a directory; 0 for other types. The tag should be a short, but some writers use longs.
uint64_t WholeNumberBytes(uint64_t type) {
  return type == 3 || type == 8 ? 2 : type == 4 || type == 9 || type == 13 ? 4 : type == 6 ? 1 : 0;
}

// Bytes of one value of a type that Pillow knows; 0 for other types, whose entries Pillow skips.
uint64_t BytesOfType(uint64_t type) {
  constexpr uint8_t kBytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

// nullopt: the tag is missing. A TIFF block has a byte order, the number 42 and the offset of the first
// directory; a directory is a count and entries of 12 bytes: tag, type, count, value.
std::optional<uint32_t> TiffOrientation(Bytes tiff) {
  constexpr uint64_t kOrientation = 0x0112;
  // Pillow removes up to two prefixes
  for (int prefix = 0; prefix < 2 && StartsWith(tiff, kExifPrefix); ++prefix)
    tiff = tiff.subspan(kExifPrefix.size());
  if (tiff.empty()) return std::nullopt;
  const bool big = StartsWith(tiff, "MM");
  if (tiff.size() < 8 || (!big && !StartsWith(tiff, "II")) || Number(tiff, 2, 2, big) != 42) return 1;
  const uint64_t directory = Number(tiff, 4, 4, big);
  if (directory + 2 > tiff.size()) return std::nullopt;
  const uint64_t count = Number(tiff, directory, 2, big);
  for (uint64_t i = 0, at = directory + 2; i < count && at + 12 <= tiff.size(); ++i, at += 12) {
    const uint64_t type = Number(tiff, at + 2, 2, big), values = Number(tiff, at + 4, 4, big);
    if (Number(tiff, at, 2, big) != kOrientation || BytesOfType(type) * values == 0) continue;
    const uint64_t size = WholeNumberBytes(type);
    if (size == 0 || size * values > 4) return 1;  // more bytes are stored elsewhere
    const uint64_t value = Number(tiff, at + 8, size, big);
    return value >= 1 && value <= 8 ? static_cast<uint32_t>(value) : 1;
  }
  return std::nullopt;
}

// XMP is used only if EXIF lacks the tag.
uint32_t OrientationOf(Bytes exif, Bytes xmp) {
  const std::optional<uint32_t> orientation = TiffOrientation(exif);
  return orientation ? *orientation : XmpOrientation(xmp);
}

// Whether a JPEG marker has a length, as in Pillow: of the markers before the scans all except the stuffed 0,
// start, end, restarts and extensions. (Unknown markers make Pillow give up, and the decoder, too.)
bool HasLength(uint64_t marker) {
  constexpr uint64_t kFirst = 0xc0, kExtension = 0xc8, kRestart = 0xd0, kEnd = 0xd9, kApp15 = 0xef,
                     kComment = 0xfe;
  if (marker == kComment) return true;
  return marker >= kFirst && marker <= kApp15 && marker != kExtension && (marker < kRestart || marker > kEnd);
}

}  // namespace

// The orientation in the first attribute or element of that name. Like Pillow, this searches the text and
// does not parse XML.
uint32_t XmpOrientation(Bytes xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  const std::string_view text(reinterpret_cast<const char*>(xmp.data()), xmp.size());
  for (size_t at = text.find(kName); at != text.npos; at = text.find(kName, at)) {
    at += kName.size();
    const std::string_view rest = text.substr(at);
    const size_t before = rest.starts_with("=\"") ? 2 : rest.starts_with('>') ? 1 : rest.size();
    if (before >= rest.size() || rest[before] < '0' || rest[before] > '9') continue;
    const auto value = static_cast<uint32_t>(rest[before] - '0');
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

uint32_t JpegOrientation(Bytes file) {
  constexpr uint64_t kMark = 0xff, kApp1 = 0xe1, kStartOfScan = 0xda;
  Bytes first;                   // the whole block, if it is one segment
  std::vector<std::byte> whole;  // several segments, which Pillow joins
  Bytes xmp;                     // the last one
  for (size_t at = 2; at + 2 <= file.size();) {
    const uint64_t marker = Number(file, at + 1, 1, true);
    // Bytes that are no marker are skipped, as in the library.
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
    if (marker != kApp1) continue;
    if (StartsWith(body, kXmpPrefix)) xmp = body.subspan(kXmpPrefix.size());
    if (!StartsWith(body, kExifPrefix)) continue;
    if (first.empty()) {
      first = body;
      continue;
    }
    if (whole.empty()) whole.assign(first.begin(), first.end());
    const Bytes rest = body.subspan(kExifPrefix.size());
    whole.insert(whole.end(), rest.begin(), rest.end());
  }
  return OrientationOf(whole.empty() ? first : Bytes(whole), xmp);
}

uint32_t PngOrientation(Bytes file) {
  Bytes exif, xmp;
  ForEachPngChunk(file, [&](std::string_view type, Bytes body) {
    if (type == "eXIf") exif = body;
    const bool plain = type == "tEXt", international = type == "iTXt";
    if ((!plain && !international) || !StartsWith(body, kXmpKeyword)) return;
    body = body.subspan(kXmpKeyword.size());
    if (international) {
      // Flags for compression, then a language and a translated keyword that both end with a 0.
      if (body.size() < 2 || body[0] != std::byte{0}) return;
      body = body.subspan(2);
      for (int text = 0; text < 2; ++text) {
        const void* end = body.empty() ? nullptr : std::memchr(body.data(), 0, body.size());
        if (end == nullptr) return;
        body = body.subspan(static_cast<size_t>(static_cast<const std::byte*>(end) - body.data()) + 1);
      }
    }
    xmp = body;
  });
  return OrientationOf(exif, xmp);
}

uint32_t WebpOrientation(Bytes file) {
  constexpr size_t kRiff = 12, kHead = 8;
  // The extended format has flags for its chunks; a chunk without its flag is not read.
  if (file.size() <= kRiff + kHead || !StartsWith(file.subspan(kRiff), "VP8X")) return 1;
  const uint64_t flags = Number(file, kRiff + kHead, 1, true);
  Bytes exif, xmp;
  for (size_t at = kRiff; at + kHead <= file.size();) {
    const uint64_t length = Number(file, at + 4, 4, false);
    if (length > file.size() - at - kHead) break;
    const Bytes name = file.subspan(at), body = file.subspan(at + kHead, length);
    if ((flags & 8) != 0 && exif.empty() && StartsWith(name, "EXIF")) exif = body;
    if ((flags & 4) != 0 && xmp.empty() && StartsWith(name, "XMP ")) xmp = body;
    at += kHead + length + length % 2;
  }
  return OrientationOf(exif, xmp);
}

}  // namespace evenkeel::preprocess
