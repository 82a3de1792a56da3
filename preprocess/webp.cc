// WebP stills through libwebp. The only file that includes it.
#include <webp/decode.h>

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/status.h"
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

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits&) const override {
    WebPBitstreamFeatures features;
    VP8StatusCode code = WebPGetFeatures(Data(bytes), bytes.size(), &features);
    if (code != VP8_STATUS_OK)
      return absl::InvalidArgumentError(absl::StrCat("WebP header: ", std::string(NameOf(code))));
    if (features.has_animation) return absl::UnimplementedError("animated WebP; only stills are read");
    ImageHeader header{static_cast<uint32_t>(features.width), static_cast<uint32_t>(features.height), 0};
    header.stored_bytes = header.rgb_bytes();
    return header;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits& limits, const ImageHeader& header,
                      std::span<uint8_t> rgb) const override {
    EVENKEEL_ASSIGN_OR_RETURN(ImageHeader actual, ReadHeader(bytes, limits));
    if (actual.width != header.width || actual.height != header.height) {
      return absl::DataLossError("WebP with other dimensions than the index says");
    }
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0)
      return absl::InternalError("libwebp has another version than its header");
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = rgb.data();
    config.output.u.RGBA.stride = static_cast<int>(3 * header.width);
    config.output.u.RGBA.size = rgb.size();
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
