// The settings of pixels that every image processor's configuration has: colours, resampling, normalization.
// They are read here only.
//
// Thread safety: plain values; needs none.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "preprocess/families/config_file.h"
#include "preprocess/image/picture.h"
#include "preprocess/processor.h"

namespace evenkeel::preprocess {

inline constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
inline constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};
inline constexpr std::array<double, 3> kHalves = {0.5, 0.5, 0.5};

struct PixelSettings {
  double rescale = 0;        // 1 if do_rescale is false
  bool normalized = true;    // else the rescaled values are final
  bool resized = true;       // else pictures keep their size
  bool by_division = false;  // divided by 255, then normalized, as torchvision's ToTensor and Normalize do
  bool in_bf16 = false;      // scaled, then normalized, with each step rounded to bfloat16
  std::array<double, 3> mean{};
  std::array<double, 3> std{};
  ResizeFilter filter = ResizeFilter::kBicubic;
  PictureOptions picture;
  Wire wire = Wire::kU8;

  // The final value of every byte, [3 * 256], rounded as in the chosen resampler's path: PIL scales, then
  // normalizes; torchvision folds the scale into mean and deviation.
  std::vector<float> Table() const;
  // The value of one byte of channel `c` if every step is rounded to bfloat16.
  float InBf16(size_t c, int byte) const;
};

// Consumes the keys of colours, resampling, rescaling and normalization, and marks keys without effect as
// known. Sizes, crops and patches are left to the family. Defaults: `mean`, `std`, `filter`.
absl::StatusOr<PixelSettings> ReadPixelSettings(ConfigFile& config, const ProcessorSpec& spec,
                                                const std::array<double, 3>& mean,
                                                const std::array<double, 3>& std,
                                                ResizeFilter filter = ResizeFilter::kBicubic);

// The same pixels with another filter, mean and deviation, whose keys have a prefix: "high_res_image_mean".
absl::StatusOr<PixelSettings> ReadFurtherPixels(ConfigFile& config, std::string_view prefix,
                                                PixelSettings pixels, const std::array<double, 3>& mean,
                                                const std::array<double, 3>& std, ResizeFilter filter);

// Ignores the keys of a feature extractor, for a file that contains both processors.
void IgnoreFeatureExtractor(ConfigFile& config);
// Ignores the keys of an image processor.
void IgnoreImageProcessor(ConfigFile& config);

// Sizes as transformers writes them: {"height", "width"}, {"shortest_edge"}, that with "longest_edge",
// {"max_height", "max_width"}, a list of height and width, or a number. 0: absent.
struct SideSizes {
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t shortest_edge = 0;
  uint32_t longest_edge = 0;
  uint32_t max_height = 0;
  uint32_t max_width = 0;

  bool given() const { return *this != SideSizes{}; }
  // True if the result does not depend on the picture's size.
  bool fixed() const { return height != 0 && *this == SideSizes{.height = height, .width = width}; }
  friend bool operator==(const SideSizes&, const SideSizes&) = default;
};
// What a single number means: height and width, or the shortest edge. For the key "size", "default_to_square"
// overrides it if present.
enum class NumberIs : uint8_t { kSquare, kShortestEdge };
// `usual` if the key is absent. All notations of a size are the same text in the digest.
SideSizes ReadSideSizes(ConfigFile& config, std::string_view key, NumberIs number_is, const SideSizes& usual);
// The side of a square. InvalidArgument: the file has another shape.
absl::StatusOr<uint32_t> SquareSide(const ConfigFile& config, std::string_view key, const SideSizes& sizes);
// InvalidArgument: members that are not one of the sets above. An empty size is not an error.
absl::Status CheckSideSizes(const ConfigFile& config, std::string_view key, const SideSizes& sizes);

// A field of pixels with rows of [3, frames, patch, patch], in the wire form; `frames_on_wire` of the frames
// are sent.
FieldSpec PixelField(std::string_view name, const PixelSettings& settings, uint32_t frames, uint32_t patch,
                     uint32_t frames_on_wire);
// A field of tiles, [3, height, width] each; as bytes 3 * height * width, which is the input of their
// expansion.
FieldSpec TileField(std::string_view name, const PixelSettings& settings, ImageSize tile);
// InvalidArgument: a tile that is too large for the wire form.
absl::Status CheckTile(const PixelSettings& settings, ImageSize tile);

}  // namespace evenkeel::preprocess
