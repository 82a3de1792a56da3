// WebP through libwebp: stills, and the first frame of animations on its canvas, as Pillow opens them. The
// only file that includes it.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image/exif.h"
#include "preprocess/image/image.h"

namespace evenkeel::preprocess {
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
      return "a feature that the library does not support";
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
      return absl::DataLossError("WebP dimensions differ from those in the index");
    }
    const bool blended = features.has_alpha != 0 && options.background.has_value();
    const size_t stride = (blended ? size_t{4} : size_t{3}) * width;
    const WEBP_CSP_MODE mode = blended ? MODE_RGBA : MODE_RGB;
    uint8_t* picture = picture_memory.Get(stride * header.height);
    if (features.has_animation != 0) {
      EVENKEEL_RETURN_IF_ERROR(DecodeFirstFrame(bytes, mode, picture, stride, header.height));
    } else {
      EVENKEEL_RETURN_IF_ERROR(
          DecodeInto(Data(bytes), bytes.size(), mode, picture, stride, stride * header.height));
    }
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
    return features;
  }

  // The canvas around the frame is transparent black. A frame's rectangle is checked against the canvas
  // before its first byte is written.
  static absl::Status DecodeFirstFrame(std::span<const std::byte> bytes, WEBP_CSP_MODE mode, uint8_t* canvas,
                                       size_t stride, uint32_t height) {
    const WebPData data{Data(bytes), bytes.size()};
    const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demuxer(WebPDemux(&data), WebPDemuxDelete);
    WebPIterator frame;
    if (demuxer == nullptr || WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0)
      return absl::DataLossError("animated WebP: its frames are truncated or damaged");
    const std::unique_ptr<WebPIterator, void (*)(WebPIterator*)> release(&frame, WebPDemuxReleaseIterator);
    const size_t pixel = mode == MODE_RGBA ? 4 : 3;
    const auto left = static_cast<size_t>(frame.x_offset), top = static_cast<size_t>(frame.y_offset);
    const auto wide = static_cast<size_t>(frame.width), high = static_cast<size_t>(frame.height);
    if (pixel * (left + wide) > stride || top + high > height)
      return absl::DataLossError("animated WebP: its first frame is not on the canvas");
    std::memset(canvas, 0, stride * height);
    uint8_t* const out = canvas + stride * top + pixel * left;
    return DecodeInto(frame.fragment.bytes, frame.fragment.size, mode, out, stride,
                      stride * (height - top) - pixel * left);
  }

  static absl::Status DecodeInto(const uint8_t* bytes, size_t count, WEBP_CSP_MODE mode, uint8_t* out,
                                 size_t stride, size_t size) {
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0)
      return absl::InternalError("the version of libwebp differs from its header");
    config.output.colorspace = mode;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out;
    config.output.u.RGBA.stride = static_cast<int>(stride);
    config.output.u.RGBA.size = size;
    VP8StatusCode code = WebPDecode(bytes, count, &config);
    WebPFreeDecBuffer(&config.output);
    if (code == VP8_STATUS_OK) return absl::OkStatus();
    if (code == VP8_STATUS_OUT_OF_MEMORY) return absl::InternalError("WebP: no memory");
    return absl::DataLossError(absl::StrCat("WebP of ", count, " bytes: ", std::string(NameOf(code))));
  }
};

}  // namespace

const ImageCodec& WebpCodec() {
  static const Webp codec;
  return codec;
}

}  // namespace evenkeel::preprocess
