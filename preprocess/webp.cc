// WebP stills through libwebp. The only file that includes it.
#include <webp/decode.h>

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/exif.h"
#include "preprocess/image.h"

namespace evenkeel {
namespace {

const uint8_t* Data(std::span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

std::string_view NameOf(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the data ends";
    case VP8_STATUS_BITSTREAM_ERROR:
      return "the bit stream is corrupt";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature that the library does not know";
    case VP8_STATUS_OUT_OF_MEMORY:
      return "no memory";
    default:
      return "cannot be decoded";
  }
}

class Webp final : public ImageCodec {
 public:
  bool HasMagic(std::span<const std::byte> bytes) const override {
    return bytes.size() >= 12 && std::memcmp(bytes.data(), "RIFF", 4) == 0 &&
           std::memcmp(bytes.data() + 8, "WEBP", 4) == 0;
  }

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits&,
                                         const ColourOptions&) const override {
    EVENKEEL_ASSIGN_OR_RETURN(WebPBitstreamFeatures features, FeaturesOf(bytes));
    ImageHeader header{static_cast<uint32_t>(features.width), static_cast<uint32_t>(features.height), 0,
                       WebpOrientation(bytes)};
    header.stored_bytes = header.rgb_bytes();
    return header;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits&, const ColourOptions& options,
                      const ImageHeader& header, uint32_t, BandSink& sink) const override {
    static thread_local ScratchBytes picture_memory, row_memory;
    EVENKEEL_ASSIGN_OR_RETURN(WebPBitstreamFeatures features, FeaturesOf(bytes));
    const auto width = static_cast<uint32_t>(features.width);
    if (width != header.width || static_cast<uint32_t>(features.height) != header.height) {
      return absl::DataLossError("WebP with other dimensions than the index says");
    }
    const bool blended = features.has_alpha != 0 && options.background.has_value();
    const size_t stride = (blended ? size_t{4} : size_t{3}) * width;
    uint8_t* picture = picture_memory.Get(stride * header.height);
    EVENKEEL_RETURN_IF_ERROR(
        DecodeInto(bytes, blended ? MODE_RGBA : MODE_RGB, picture, stride, header.height));
    if (!blended) {
      sink.TakeBand(picture, stride, header.height);
      return absl::OkStatus();
    }
    uint8_t* row = row_memory.Get(size_t{3} * width);
    for (uint32_t y = 0; y < header.height; ++y) {
      RgbaToRgb(picture + stride * y, width, options.background, row);
      sink.TakeBand(row, size_t{3} * width, 1);
    }
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<WebPBitstreamFeatures> FeaturesOf(std::span<const std::byte> bytes) {
    WebPBitstreamFeatures features;
    VP8StatusCode code = WebPGetFeatures(Data(bytes), bytes.size(), &features);
    if (code != VP8_STATUS_OK)
      return absl::InvalidArgumentError(absl::StrCat("WebP header: ", std::string(NameOf(code))));
    if (features.has_animation) return absl::UnimplementedError("animated WebP; only stills are read");
    return features;
  }

  static absl::Status DecodeInto(std::span<const std::byte> bytes, WEBP_CSP_MODE mode, uint8_t* out,
                                 size_t stride, uint32_t height) {
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0)
      return absl::InternalError("libwebp has another version than its header");
    config.output.colorspace = mode;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out;
    config.output.u.RGBA.stride = static_cast<int>(stride);
    config.output.u.RGBA.size = stride * height;
    VP8StatusCode code = WebPDecode(Data(bytes), bytes.size(), &config);
    WebPFreeDecBuffer(&config.output);
    if (code == VP8_STATUS_OK) return absl::OkStatus();
    if (code == VP8_STATUS_OUT_OF_MEMORY) return absl::InternalError("WebP: no memory");
    return absl::DataLossError(absl::StrCat("WebP of ", bytes.size(), " bytes: ", std::string(NameOf(code))));
  }
};

}  // namespace

const ImageCodec& WebpCodec() {
  static const Webp codec;
  return codec;
}

}  // namespace evenkeel
