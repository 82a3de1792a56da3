// Pixtral, Mistral Small 3.1 and later: pictures keep their shape, within a longest side, as patches; one
// placeholder per patch, or per square of patches if the model merges them, and a special token after every
// row of placeholders.
//
// The rules are those of transformers' models/pixtral/{image_processing,processing}_pixtral.py.
#include "preprocess/families/pixtral.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxPatch = 256;

// The side of a merged square of patches that the image processor uses on its own; its processor overrides
// it. Without a processor this value counts.
absl::StatusOr<uint32_t> ReadOwnPatch(ConfigFile& config, bool asked) {
  const SideSizes patch = ReadSideSizes(config, "patch_size", NumberIs::kSquare, {.height = 16, .width = 16});
  if (!asked) config.NotNull({"patch_size"});
  if (patch.fixed() && patch.width == patch.height && patch.width <= kMaxPatch) return patch.width;
  return config.Error("patch_size", "is not a square of at most 256 pixels; only that is implemented");
}

// The maximum height and width.
absl::StatusOr<ImageSize> ReadMost(const ConfigFile& config, const SideSizes& size) {
  if (size.fixed() && size.width != 0) return ImageSize{size.width, size.height};
  const SideSizes edges{.shortest_edge = size.shortest_edge, .longest_edge = size.longest_edge};
  if (size.longest_edge != 0 && size == edges) return ImageSize{size.longest_edge, size.longest_edge};
  return config.Error("size", "is neither {longest_edge} nor {height, width}");
}

// The processor's settings of placeholders.
struct PixtralTokens {
  uint32_t patch = 16;
  uint32_t merge = 1;
  MediumStyle style;
};

// Reads and finishes the processor's own file. `own_patch`: the image processor's, used without a processor.
absl::StatusOr<PixtralTokens> ReadTokens(const FamilySource& source, bool asked, uint32_t own_patch) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  PixtralTokens out;
  out.patch = static_cast<uint32_t>(outer.Uint("patch_size", asked ? 16 : own_patch, 1, kMaxPatch));
  out.merge = static_cast<uint32_t>(outer.Uint("spatial_merge_size", 1, 1, 16));
  out.style = {.placeholder = outer.Text("image_token", "[IMG]"),
               .end = outer.Text("image_break_token", "[IMG_BREAK]"),
               .last_end = outer.Text("image_end_token", "[IMG_END]")};
  outer.NotNull({"patch_size", "spatial_merge_size", "image_token", "image_break_token", "image_end_token"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t of_model, VisionPatchSize(source.checkpoint, out.patch));
  if (of_model == out.patch) return out;
  return outer.Error("patch_size", absl::StrCat("is ", out.patch, ", but config.json has ", of_model,
                                                ", so that pictures would be cut otherwise than the model "
                                                "cuts them"));
}

}  // namespace

// get_resize_output_image_size: a picture that exceeds the maximum is reduced until both sides fit, with
// sides rounded down; then sides are rounded up to whole steps, so that a result may exceed the maximum by
// less than a step.
ImageSize PixtralSize(ImageSize picture, ImageSize most, uint32_t step) {
  const double ratio = std::max(static_cast<double>(picture.height) / most.height,
                                static_cast<double>(picture.width) / most.width);
  const auto whole_steps = [&](uint32_t side) {
    if (ratio > 1) side = static_cast<uint32_t>(std::floor(side / ratio));
    return (side + step - 1) / step * step;
  };
  return {whole_steps(picture.width), whole_steps(picture.height)};
}

MadeFamily MakePixtral(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "pixtral";
  const bool asked = config.Text("processor_class", "") == "PixtralProcessor";
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t own_patch, ReadOwnPatch(config, asked));
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.longest_edge = 1024});
  config.Pin("do_center_crop", false);
  config.NotNull({"size"});
  config.Inert({"do_pad", "crop_size"});  // padding concerns batches only
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(const ImageSize most, ReadMost(config, size));
  EVENKEEL_ASSIGN_OR_RETURN(const PixtralTokens tokens, ReadTokens(source, asked, own_patch));

  const uint32_t step = asked ? tokens.patch * tokens.merge : own_patch;
  settings.tile = {tokens.patch, tokens.patch};
  settings.patches_per_tile = 1;
  settings.style = tokens.style;
  settings.numbers = {ResizedSizes()};
  const auto sized = [=, resized = settings.pixels.resized](ImageSize picture) {
    return resized ? PixtralSize(picture, most, step) : picture;
  };
  // The picture's size in squares of patches, each of which is one token.
  const auto grid = [=, side = tokens.patch * tokens.merge](ImageSize picture) {
    const ImageSize whole = sized(picture);
    return ImageSize{whole.width / side, whole.height / side};
  };
  settings.tokens = [=](ImageSize picture) {
    const ImageSize squares = grid(picture);
    return uint64_t{squares.width} * squares.height;
  };
  settings.runs = [=](ImageSize picture, std::vector<PlaceholderRun>& runs) {
    const ImageSize squares = grid(picture);
    for (uint32_t row = 0; row < squares.height; ++row) runs.push_back({.rows = squares.width});
  };
  settings.cuts = [=, patch = tokens.patch, side = tokens.patch * tokens.merge,
                   filter =
                       settings.pixels.filter](ImageSize picture) -> absl::StatusOr<std::vector<TileCut>> {
    const ImageSize whole = sized(picture);
    if (whole.width % side != 0 || whole.height % side != 0) {
      return absl::InvalidArgumentError(absl::StrCat("a picture of ", whole.width, "x", whole.height,
                                                     " pixels, which are not whole tokens of ", side));
    }
    return std::vector<TileCut>{
        {{.resized = whole, .filter = filter}, whole.width / patch, whole.height / patch}};
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
