// What CLIP, SigLIP, ViT and LLaVA share: every picture is resized to the same size.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "preprocess/families/families.h"
#include "preprocess/families/pixel_settings.h"

namespace evenkeel::preprocess {

// The defaults of one of transformers' image processor classes.
struct FixedSizeClass {
  std::array<double, 3> mean{};
  std::array<double, 3> std{};
  SideSizes size;
  uint32_t crop = 0;  // side; 0: cropped only if the file asks for it, to the file's size
  ResizeFilter filter = ResizeFilter::kBicubic;
  NumberIs number_is = NumberIs::kShortestEdge;  // what a single number for the size means
};
inline constexpr FixedSizeClass kClipPictures = {kClipMean, kClipStd, {.shortest_edge = 224}, 224};
inline constexpr FixedSizeClass kSiglipPictures = {kHalves, kHalves, {.height = 224, .width = 224}, 0};

struct FixedSize {
  PixelSettings pixels;
  SideSizes size;              // before the crop
  bool cropped = false;        // to the centre of the resized picture, with black borders if that is smaller
  ImageSize result;            // of every picture
  bool pad_to_square = false;  // before the resize, with the mean colour
  std::string placeholder = "<image>";
  uint32_t file_tokens = 0;  // image_seq_length of the file; 0: absent
};

// int(mean * 255), as in the original projects, clamped to a byte, as Pillow does.
Colour MeanColour(const PixelSettings& pixels);

// The placeholders of a picture in a sequence.
struct PictureTokens {
  uint32_t count = 0;
  MediumStyle style;
};

// Reads the keys of colours, size and crop, and finishes the file, whose other keys must be known by then.
// `pad_to_square` as above. InvalidArgument: a wrong value or an unknown key.
absl::StatusOr<FixedSize> ReadFixedSize(ConfigFile& config, const ProcessorSpec& spec,
                                        const FixedSizeClass& usual, bool pad_to_square = false);

// Checks that the file's processor_class is one of `classes`. InvalidArgument otherwise: another processor
// may share the image processor and write different tokens around pictures (Florence-2's uses CLIP's).
absl::Status CheckEncoderClass(ConfigFile& config, std::initializer_list<std::string_view> classes);

// A family with one tile per picture.
MadeFamily MakeFixedSize(std::string_view family, const FixedSize& fixed, uint32_t patch,
                         const PictureTokens& tokens, const FamilySource& source);
// The same with (height / patch) * (width / patch) + extra_tokens placeholders. InvalidArgument: the file has
// another number.
MadeFamily MakeFixedSize(std::string_view family, const FixedSize& fixed, uint32_t patch,
                         int32_t extra_tokens, const FamilySource& source);

// A vision encoder alone, whose files have nothing else: one token per patch, of 16 pixels unless config.json
// has another size.
MadeFamily MakeEncoder(std::string_view family, const FixedSizeClass& usual, ConfigFile config,
                       const FamilySource& source);

}  // namespace evenkeel::preprocess
