// CLIP: the shorter side resized, then the centre cropped; or a fixed size. BitImageProcessor, which is
// DINOv2's, has the same rules and defaults.
//
// The rules are those of transformers' models/clip/image_processing_clip.py and image_processing_backends.py,
// for the PIL path image_transforms.py.
#include "preprocess/families/clip.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

// Truncates as Python's int() does.
uint32_t Truncated(double exact) { return static_cast<uint32_t>(std::min<double>(exact, UINT32_MAX)); }

// transformers' get_size_with_aspect_ratio: the shorter side becomes `shortest`, or less if the longer one
// would otherwise exceed `longest`.
ImageSize EdgesSize(ImageSize picture, uint32_t shortest, uint32_t longest) {
  const double shorter = std::min(picture.width, picture.height);
  const double longer = std::max(picture.width, picture.height);
  double exact = shortest;  // the shorter side, before rounding
  if (longer / shorter * shortest > longest) exact = longest * shorter / longer;
  const double edge = std::nearbyint(exact);  // half to even, as Python's round()
  if (shorter == edge) return picture;
  if (picture.width < picture.height)
    return {Truncated(edge), Truncated(exact * picture.height / picture.width)};
  return {Truncated(exact * picture.width / picture.height), Truncated(edge)};
}

// transformers' get_image_size_for_max_height_width.
ImageSize WithinSize(ImageSize picture, uint32_t max_height, uint32_t max_width) {
  const double scale = std::min(static_cast<double>(max_height) / picture.height,
                                static_cast<double>(max_width) / picture.width);
  return {Truncated(picture.width * scale), Truncated(picture.height * scale)};
}

}  // namespace

ImageSize ShortestEdgeSize(ImageSize picture, uint32_t edge) {
  const bool upright = picture.width <= picture.height;
  const uint64_t shorter = upright ? picture.width : picture.height;
  const uint64_t longer = upright ? picture.height : picture.width;
  // Python divides two integers as doubles and truncates.
  const uint32_t other = Truncated(static_cast<double>(edge * longer) / static_cast<double>(shorter));
  return upright ? ImageSize{edge, other} : ImageSize{other, edge};
}

ImageSize ResizedBy(const SideSizes& size, ImageSize picture) {
  if (size.longest_edge != 0) return EdgesSize(picture, size.shortest_edge, size.longest_edge);
  if (size.shortest_edge != 0) return ShortestEdgeSize(picture, size.shortest_edge);
  if (size.max_height != 0) return WithinSize(picture, size.max_height, size.max_width);
  return {size.width, size.height};
}

int32_t CropBegin(uint32_t side, uint32_t crop, Resampler resampler) {
  if (side >= crop) return static_cast<int32_t>((side - crop) / 2);
  const uint32_t missing = crop - side;
  return -static_cast<int32_t>(resampler != Resampler::kAtenU8 ? (missing + 1) / 2 : missing / 2);
}

MadeFamily MakeClip(ConfigFile config, const FamilySource& source) {
  EVENKEEL_RETURN_IF_ERROR(CheckEncoderClass(
      config, {"CLIPProcessor", "AltCLIPProcessor", "CLIPSegProcessor", "VisionTextDualEncoderProcessor"}));
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(FixedSize fixed, ReadFixedSize(config, source.spec, kClipPictures));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  const uint32_t patch = VisionPatchSize(model, 14);
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  return MakeFixedSize("clip", fixed, patch, /*extra_tokens=*/0, source);
}

}  // namespace evenkeel::preprocess
