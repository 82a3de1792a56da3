// Where the coded picture of a HEIF or AVIF file lies, and how its pixels are to be placed: the boxes of ISO/IEC
// 23008-12 that say so, and nothing else of the file. Decodes nothing.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(const HeifFile file, ReadHeif(bytes));
//     for (const HeifTile& tile : file.picture.tiles) Append(tile.extents, &coded);  // one image of tile.codec
//
// Memory grows with the bytes of the file only: a size that a box claims allocates nothing.
//
// Thread safety: pure. The result refers to `bytes`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

enum class HeifCodec : uint8_t { kAv1, kHevc };

// The meaning of Y, Cb and Cr, by the numbers of ITU-T H.273.
struct CodedColours {
  static constexpr uint16_t kUnspecified = 2;
  uint16_t primaries = kUnspecified;
  uint16_t matrix = kUnspecified;
  bool full_range = false;
};

// One coded image.
struct HeifTile {
  std::span<const std::byte> configuration;         // av1C or hvcC
  std::vector<std::span<const std::byte>> extents;  // its bytes, in this order
};

// One image, or a grid of equal ones, of which the last column and the last row may reach beyond the picture.
struct HeifPicture {
  HeifCodec codec = HeifCodec::kAv1;
  ImageSize size;
  ImageSize tile;
  uint32_t columns = 1;
  uint32_t rows = 1;
  std::vector<HeifTile> tiles;  // [rows, columns]
  std::optional<CodedColours> colours;
};

// What is done to the decoded picture, as the file orders it: first cut, then turned.
struct HeifPlacement {
  uint32_t left = 0;
  uint32_t top = 0;
  ImageSize cut;             // the part that is shown
  bool is_cut = false;       // whether the file names a part
  uint32_t orientation = 1;  // EXIF's number
  // Whether samples of colour, half as many in both directions or in rows, no longer lie in the middle of their pixels:
  // an odd side was turned or mirrored, or an odd number of pixels cut off.
  bool shifts_420 = false;
  bool shifts_422 = false;
  bool operator==(const HeifPlacement&) const = default;
};

struct HeifFile {
  HeifPicture picture;
  HeifPlacement placement;
  std::optional<HeifPicture> alpha;
  HeifPlacement alpha_placement;
  bool premultiplied = false;
};

// Whether the file begins as ISO media files of pictures do: an `ftyp` box of a known brand.
bool HasHeifMagic(std::span<const std::byte> bytes);

// The primary item, and the alpha that belongs to it. InvalidArgument: damaged, with the byte or the box;
// Unimplemented: a kind of item or property that changes the picture and is not supported.
absl::StatusOr<HeifFile> ReadHeif(std::span<const std::byte> bytes);

}  // namespace evenkeel::preprocess
