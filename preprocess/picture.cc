#include "preprocess/picture.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image.h"
#include "preprocess/resize_pil.h"

namespace evenkeel {
namespace {

void DeliverWindow(const std::vector<uint8_t>& rgb, const PictureTarget& target) {
  const ImageSize window = target.window == ImageSize{} ? target.resized : target.window;
  std::vector<uint8_t> planes(size_t{3} * window.width);
  for (uint32_t y = 0; y < window.height; ++y) {
    for (uint32_t x = 0; x < window.width; ++x) {
      const int64_t from_x = int64_t{x} + target.left, from_y = int64_t{y} + target.top;
      const bool inside =
          from_x >= 0 && from_x < target.resized.width && from_y >= 0 && from_y < target.resized.height;
      for (uint32_t c = 0; c < 3; ++c) {
        planes[c * window.width + x] =
            inside ? rgb[(static_cast<size_t>(from_y) * target.resized.width + from_x) * 3 + c] : 0;
      }
    }
    target.sink->Take(
        {{planes.data(), planes.data() + window.width, planes.data() + 2 * window.width}, window.width});
  }
}

}  // namespace

absl::StatusOr<PictureOptions> PictureOptionsOf(const ProcessorSpec& spec, const PictureOptions& family) {
  PictureOptions options = family;
  if (spec.resampler == "pil") {
    options.resampler = Resampler::kPil;
  } else if (spec.resampler == "aten_u8") {
    options.resampler = Resampler::kAtenU8;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("processor.resampler: '", spec.resampler, "'; pil and aten_u8 are implemented"));
  }
  return options;
}

void AddTo(CanonicalText& text, const PictureOptions& options) {
  text.Add("vision.resampler", std::string_view(options.resampler == Resampler::kPil ? "pil" : "aten_u8"));
}

absl::StatusOr<PictureHeader> ReadPictureHeader(std::string_view suffix, std::span<const std::byte> bytes,
                                                const Limits& limits, const PictureOptions&) {
  EVENKEEL_ASSIGN_OR_RETURN(ImageHeader image, ReadImageHeader(suffix, bytes, limits));
  PictureHeader header;
  header.stored = header.size = {image.width, image.height};
  header.stored_bytes = image.stored_bytes;
  return header;
}

ImageSize PictureSize(const MediaFacts& facts, const PictureOptions& options) {
  const bool quarter = facts.rotation == 90 || facts.rotation == 270;
  if (options.exif_orientation == ExifOrientation::kApply && quarter) return {facts.height, facts.width};
  return {facts.width, facts.height};
}

absl::Status DecodePicture(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                           const PictureOptions&, const PictureHeader& header,
                           std::span<const PictureTarget> targets) {
  std::vector<uint8_t> rgb(header.stored.rgb_bytes());
  EVENKEEL_RETURN_IF_ERROR(DecodeImage(
      suffix, bytes, limits, {header.stored.width, header.stored.height, header.stored_bytes}, rgb));
  for (const PictureTarget& target : targets) {
    ImageSize size = header.stored;
    std::vector<uint8_t> source = rgb;
    if (target.square) {
      const uint32_t side = std::max(size.width, size.height);
      source.resize(size_t{3} * side * side);
      for (size_t i = 0; i < source.size(); ++i) source[i] = (*target.square)[i % 3];
      const uint32_t left = (side - size.width) / 2, top = (side - size.height) / 2;
      for (uint32_t y = 0; y < size.height; ++y) {
        std::memcpy(&source[(size_t{top + y} * side + left) * 3], &rgb[size_t{y} * size.width * 3],
                    size_t{3} * size.width);
      }
      size = {side, side};
    }
    std::vector<uint8_t> resized(target.resized.rgb_bytes());
    ResizePil(source, size, target.filter, resized, target.resized);
    DeliverWindow(resized, target);
  }
  return absl::OkStatus();
}

}  // namespace evenkeel
