#include "preprocess/fixed_size.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/clip.h"
#include "preprocess/tiles.h"

namespace evenkeel {
namespace {

// int(mean * 255), as the original project writes it.
Colour MeanColour(const PixelSettings& pixels) {
  Colour out{};
  for (size_t c = 0; c < out.size(); ++c) out[c] = static_cast<uint8_t>(pixels.mean[c] * 255);
  return out;
}

std::vector<TileCut> Cut(const FixedSize& fixed, ImageSize picture) {
  PictureTarget target;
  target.filter = fixed.pixels.filter;
  if (fixed.pad_to_square) {
    target.square = MeanColour(fixed.pixels);
    const uint32_t longer = std::max(picture.width, picture.height);
    picture = {longer, longer};
  }
  const Resampler resampler = fixed.pixels.picture.resampler;
  target.resized = fixed.shortest_edge == 0 ? fixed.resized : ShortestEdgeSize(picture, fixed.shortest_edge);
  target.window = {fixed.side, fixed.side};
  target.left = CropBegin(target.resized.width, fixed.side, resampler);
  target.top = CropBegin(target.resized.height, fixed.side, resampler);
  return {{target, 1, 1}};
}

}  // namespace

absl::StatusOr<FixedSize> ReadCropped(ConfigFile& config, const ProcessorSpec& spec) {
  FixedSize out;
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(config, spec, kClipMean, kClipStd));
  SideSizes size = ReadSideSizes(config, "size", NumberIs::kShortestEdge);
  SideSizes crop = ReadSideSizes(config, "crop_size", NumberIs::kSquare);
  const bool cropped = config.Flag("do_center_crop", !config.IsNull("do_center_crop"));
  config.Pin("use_square_size", false);
  config.NotNull({"size"});
  if (cropped) config.NotNull({"crop_size"});
  if (size.shortest_edge == 0 && size.height == 0 && size.width == 0) size.shortest_edge = 224;
  if (crop.height == 0 && crop.width == 0) crop.height = crop.width = 224;
  const bool square = size.shortest_edge == 0 && size.height == size.width;
  if (!cropped && !square) return config.Error("do_center_crop", "is false, and size is no square");
  if (size.shortest_edge == 0 && (size.height == 0 || size.width == 0)) {
    return config.Error("size", "has one of height and width");
  }
  if (cropped && (crop.height != crop.width || crop.shortest_edge != 0)) {
    return config.Error("crop_size", "only a square {height, width} is implemented");
  }
  if (size.shortest_edge != 0 && (size.height != 0 || size.width != 0)) {
    return config.Error("size", "has both a shortest_edge and a height or width");
  }
  out.shortest_edge = size.shortest_edge;
  out.resized = {size.width, size.height};
  out.side = cropped ? crop.height : size.height;
  return out;
}

absl::StatusOr<FixedSize> ReadSquare(ConfigFile& config, const ProcessorSpec& spec) {
  FixedSize out;
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(config, spec, kHalves, kHalves));
  SideSizes size = ReadSideSizes(config, "size", NumberIs::kShortestEdge);
  if (size.height == 0 && size.width == 0 && size.shortest_edge == 0) size.height = size.width = 224;
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (size.shortest_edge != 0 || size.height != size.width) {
    return config.Error("size", "only a square {height, width} is implemented");
  }
  out.resized = {size.width, size.height};
  out.side = size.height;
  return out;
}

MadeFamily MakeFixedSize(std::string_view family, const FixedSize& fixed, uint32_t patch,
                         int32_t extra_tokens, const FamilySource& source) {
  const uint32_t patches = (fixed.side / patch) * (fixed.side / patch);
  const int64_t tokens = int64_t{patches} + extra_tokens;
  if (tokens <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(source.folder, ": pictures of ", fixed.side,
                                                   " pixels make no token of patches of ", patch));
  }
  TileSettings settings;
  settings.family = std::string(family);
  settings.pixels = fixed.pixels;
  settings.side = fixed.side;
  settings.tokens_per_tile = static_cast<uint32_t>(tokens);
  settings.patches_per_tile = patches;
  settings.style = {Medium::kImage, "", fixed.placeholder, "", /*mrope=*/false};
  settings.cuts = [fixed](ImageSize picture) { return Cut(fixed, picture); };
  settings.add_to = [fixed](CanonicalText& text) {
    text.Add("vision.shortest_edge", uint64_t{fixed.shortest_edge});
    text.Add("vision.pad_to_square", uint64_t{fixed.pad_to_square});
    if (fixed.shortest_edge != 0 || fixed.resized == ImageSize{fixed.side, fixed.side}) return;
    text.Add("vision.resized_width", uint64_t{fixed.resized.width});
    text.Add("vision.resized_height", uint64_t{fixed.resized.height});
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel
