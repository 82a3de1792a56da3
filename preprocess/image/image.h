// Stills: JPEG, PNG, WebP, GIF, TIFF, AVIF and HEIF to rows of RGB8. The default is exactly the bytes of Pillow's
// `Image.open(...).convert("RGB")`: transparency is dropped (hidden colours show) and EXIF is ignored,
// except the orientation of a TIFF and the turns of a HEIF, which Pillow applies as it loads them.
//
// The declared type and the file's magic must agree; formats are not guessed. Every limit is checked before
// memory is allocated. Families use preprocess/image/picture.h, which is built on this.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(ImageHeader header, ReadImageHeader("jpg", bytes, limits));
//     std::vector<uint8_t> rgb(header.rgb_bytes());
//     EVENKEEL_RETURN_IF_ERROR(DecodeImage("jpg", bytes, limits, header, rgb));  // [height, width, 3]
//
// Thread safety: free functions; every thread keeps its own scratch memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "preprocess/resize/resize.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {

using Colour = std::array<uint8_t, 3>;

enum class SixteenBit : uint8_t {
  kRefuseGrey,  // colour loses its low byte as in Pillow; grey is refused, because Pillow's releases disagree
  kClipGrey,    // grey above 255 becomes white, as in Pillow 9 and 13
  kHighByte,    // grey loses its low byte, too
  kRefuse,
};
enum class Conversion : uint8_t { kConvert, kRefuse };

// The interpretation of a file's samples.
struct ColourOptions {
  // nullopt: transparency is dropped; otherwise blended onto this colour like Pillow's paste.
  std::optional<Colour> background;
  SixteenBit sixteen_bit = SixteenBit::kRefuseGrey;
  Conversion cmyk = Conversion::kConvert;
  Conversion palette = Conversion::kConvert;
};

struct ImageHeader {
  uint32_t width = 0;
  uint32_t height = 0;
  uint64_t stored_bytes = 0;  // bytes of the pixels in the file's own layout, before compression
  uint32_t orientation = 1;   // EXIF, 1 to 8; 1: none

  uint64_t rgb_bytes() const { return uint64_t{3} * width * height; }
  // Degrees clockwise to turn it upright, for mirrored pictures, too.
  uint32_t rotation() const {
    constexpr uint32_t kDegrees[] = {0, 0, 180, 180, 270, 90, 90, 270};
    return kDegrees[(orientation - 1) % 8];
  }
};

// Receives a picture's rows from top to bottom, a few at a time.
class BandSink {
 public:
  virtual ~BandSink() = default;
  // `band` is valid only during the call.
  virtual void TakeBand(const PixelBand& band) = 0;
  // Whether bands may have Y, Cb and Cr (PixelBand::ycc), if the codec offers that for a picture.
  virtual bool takes_ycc() const { return false; }
  // Interleaved RGB, `stride` bytes from row to row.
  void TakeBand(const uint8_t* rgb, size_t stride, uint32_t rows) {
    TakeBand(InterleavedBand(rgb, stride, rows));
  }
};

// One still format. `ReadHeader` decodes no pixel; the decoder agrees with it on every file.
class ImageCodec {
 public:
  virtual ~ImageCodec() = default;
  virtual bool HasMagic(std::span<const std::byte> bytes) const = 0;
  // InvalidArgument: damaged; Unimplemented: a variant that is not supported, or refused by the options.
  virtual absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits& limits,
                                                 const ColourOptions& options) const = 0;
  // Whether Decode can make half, a quarter or an eighth of the size at a lower cost.
  virtual bool scales() const { return false; }
  // Rows of ceil(side / reduction) pixels; `reduction` must be 1 if the codec does not scale. DataLoss:
  // truncated or corrupt, with the position (`sink` has received some rows); ResourceExhausted: a
  // limit.
  virtual absl::Status Decode(std::span<const std::byte> bytes, const Limits& limits,
                              const ColourOptions& options, const ImageHeader& header, uint32_t reduction,
                              BandSink& sink) const = 0;
};

const ImageCodec& JpegCodec();   // jpeg.cc
const ImageCodec& PngCodec();    // png.cc
const ImageCodec& WebpCodec();   // webp.cc
const ImageCodec& GifCodec();    // gif.cc
const ImageCodec& TiffCodec();   // tiff.cc
const ImageCodec& HeifCodecs();  // heif.cc; the contents tell AVIF from HEIF, as for Pillow

// The codec for `suffix` ("jpg", "jpeg", "png", "webp", "gif", "tif", "tiff", "avif", "heic", "heif" after its last
// dot), with its magic checked.
// Unimplemented: an unsupported format; InvalidArgument: the bytes belong to another one.
absl::StatusOr<const ImageCodec*> ImageCodecOf(std::string_view suffix, std::span<const std::byte> bytes);

// Whether FFmpeg's decoders decode files of `suffix`: AVIF and HEIF.
bool IsDecodedByFfmpeg(std::string_view suffix);

// Reads the header and checks the limits. InvalidArgument, ResourceExhausted, Unimplemented.
absl::StatusOr<ImageHeader> ReadImageHeader(std::string_view suffix, std::span<const std::byte> bytes,
                                            const Limits& limits, const ColourOptions& options = {});
// As ReadImageHeader and ImageCodec::Decode. `rgb` must have header.rgb_bytes().
absl::Status DecodeImage(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const ImageHeader& header, std::span<uint8_t> rgb,
                         const ColourOptions& options = {});

// Blends a row of RGBA onto `background`, or drops its alpha.
void RgbaToRgb(const uint8_t* rgba, uint32_t width, const std::optional<Colour>& background, uint8_t* rgb);
// Converts a row of CMYK like Pillow's cmyk2rgb. `inverted`: as Adobe writes it in a JPEG, where 255 is no ink.
void CmykToRgb(const uint8_t* cmyk, uint32_t width, bool inverted, uint8_t* rgb);

}  // namespace evenkeel::preprocess
