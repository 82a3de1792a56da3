// Chooses the codec of a still, and checks headers against the limits before memory is allocated.
#include "preprocess/image/image.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::preprocess {
namespace {

// A high ratio below this size is a small drawing, not a decompression bomb.
constexpr uint64_t kRatioFloorBytes = 4ull << 20;

absl::Status CheckLimits(const ImageHeader& header, uint64_t num_bytes, const Limits& limits) {
  if (header.width == 0 || header.height == 0) return absl::InvalidArgumentError("image of 0 pixels");
  if (header.width > limits.max_image_side || header.height > limits.max_image_side) {
    return absl::ResourceExhaustedError(absl::StrCat("image of ", header.width, "x", header.height,
                                                     " pixels; limits.max_image_side is ",
                                                     limits.max_image_side));
  }
  if (uint64_t{header.width} * header.height > limits.max_image_pixels) {
    return absl::ResourceExhaustedError(absl::StrCat("image of ", header.width, "x", header.height,
                                                     " pixels; limits.max_image_pixels is ",
                                                     limits.max_image_pixels));
  }
  if (header.stored_bytes > kRatioFloorBytes && header.stored_bytes / num_bytes > limits.max_decode_ratio) {
    return absl::ResourceExhaustedError(absl::StrCat("image of ", header.stored_bytes, " bytes out of ",
                                                     num_bytes, "; limits.max_decode_ratio is ",
                                                     limits.max_decode_ratio));
  }
  return absl::OkStatus();
}

// Pillow's division by 255, rounded to nearest: exact for sums of products of bytes up to 255 * 255.
uint8_t Over255(uint32_t product) {
  product += 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

class WholePicture final : public BandSink {
 public:
  WholePicture(uint8_t* out, uint32_t width) : out_(out), width_(width) {}
  void TakeBand(const PixelBand& band) override {
    for (uint32_t r = 0; r < band.rows; ++r, out_ += size_t{3} * width_)
      CopyInterleaved(band, r, width_, out_);
  }

 private:
  uint8_t* out_;
  uint32_t width_;
};

}  // namespace

bool IsDecodedByFfmpeg(std::string_view suffix) {
  const std::string_view type = suffix.substr(suffix.rfind('.') + 1);  // npos + 1 is 0
  return type == "avif" || type == "heic" || type == "heif";
}

absl::StatusOr<const ImageCodec*> ImageCodecOf(std::string_view suffix, std::span<const std::byte> bytes) {
  std::string_view type = suffix.substr(suffix.rfind('.') + 1);  // npos + 1 is 0
  const ImageCodec* codec = nullptr;
  if (type == "jpg" || type == "jpeg") codec = &JpegCodec();
  if (type == "png") codec = &PngCodec();
  if (type == "webp") codec = &WebpCodec();
  if (type == "gif") codec = &GifCodec();
  if (type == "tif" || type == "tiff") codec = &TiffCodec();
  if (IsDecodedByFfmpeg(type)) codec = &HeifCodecs();
  if (codec == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        "image type '", std::string(type),
        "' is not supported; expected jpg, jpeg, png, webp, gif, tif, tiff, avif, heic or heif"));
  }
  if (!codec->HasMagic(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("declared as '", std::string(type), "', but its first bytes belong to another format"));
  }
  return codec;
}

absl::StatusOr<ImageHeader> ReadImageHeader(std::string_view suffix, std::span<const std::byte> bytes,
                                            const Limits& limits, const ColourOptions& options) {
  if (bytes.size() > limits.max_image_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "image of ", bytes.size(), " bytes; limits.max_image_bytes is ", limits.max_image_bytes));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const ImageCodec* codec, ImageCodecOf(suffix, bytes));
  EVENKEEL_ASSIGN_OR_RETURN(ImageHeader header, codec->ReadHeader(bytes, limits, options));
  EVENKEEL_RETURN_IF_ERROR(CheckLimits(header, bytes.size(), limits));
  return header;
}

absl::Status DecodeImage(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const ImageHeader& header, std::span<uint8_t> rgb, const ColourOptions& options) {
  if (rgb.size() != header.rgb_bytes())
    return absl::InternalError("DecodeImage: the size of the caller's buffer does not fit the image");
  EVENKEEL_ASSIGN_OR_RETURN(const ImageCodec* codec, ImageCodecOf(suffix, bytes));
  WholePicture whole(rgb.data(), header.width);
  return codec->Decode(bytes, limits, options, header, /*reduction=*/1, whole);
}

// (background * (255 - alpha) + colour * alpha) / 255. The weights sum to 255, so the result is a byte.
void RgbaToRgb(const uint8_t* rgba, uint32_t width, const std::optional<Colour>& background, uint8_t* rgb) {
  for (uint32_t x = 0; x < width; ++x, rgba += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) {
      rgb[c] = background ? Over255((*background)[c] * (255 - rgba[3]) + rgba[c] * rgba[3]) : rgba[c];
    }
  }
}

// white - ink * white / 255, where `white` is what black leaves of the light.
void CmykToRgb(const uint8_t* cmyk, uint32_t width, bool inverted, uint8_t* rgb) {
  const uint8_t flip = inverted ? 255 : 0;
  for (uint32_t x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const uint32_t white = 255u - (cmyk[3] ^ flip);
    for (int c = 0; c < 3; ++c)
      rgb[c] = static_cast<uint8_t>(white - Over255(white * static_cast<uint32_t>(cmyk[c] ^ flip)));
  }
}

}  // namespace evenkeel::preprocess
