// LLaVA-NeXT: the whole picture as one tile, then the picture in the most suitable of several resolutions,
// as tiles, with black around it if its shape differs.
//
// The rules are those of transformers' models/llava_next/{image_processing,processing}_llava_next.py.
#include "preprocess/families/llava_next.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/llava.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxSide = 16384;
constexpr uint32_t kSide = 224;  // of a tile, in pixels, unless the file has another
constexpr size_t kMaxResolutions = 1024;
constexpr std::string_view kKey = "image_grid_pinpoints";

// int(round(value, 7)): undoes rounding errors below 1e-7 of what should be an integer, so that 23.99999999
// is 24 and 23.9 is 23.
uint32_t TruncatedAt7(double value) {
  const double below = std::floor(value);
  return static_cast<uint32_t>(below + 1 - value < 5e-8 ? below + 1 : below);
}

// The square that size and crop agree on. With other values transformers resizes and crops a tile a
// second time.
absl::StatusOr<ImageSize> TileOf(const ConfigFile& config, const SideSizes& size, const SideSizes& crop) {
  const uint32_t side = size.shortest_edge != 0 ? size.shortest_edge : size.height;
  const bool square = size == SideSizes{.shortest_edge = side} || size == SideSizes{side, side};
  if (side == 0 || !square) return config.Error("size", "is neither {shortest_edge} nor a square");
  if (crop != SideSizes{side, side}) {
    return config.Error("crop_size", absl::StrCat("is not the square of ", side, " pixels that size is"));
  }
  return ImageSize{side, side};
}

}  // namespace

std::vector<ImageSize> ReadResolutions(ConfigFile& config, std::string_view key,
                                       const std::vector<ImageSize>& usual) {
  std::vector<std::pair<uint64_t, uint64_t>> fallback;
  for (const ImageSize& size : usual) fallback.emplace_back(size.height, size.width);
  std::vector<ImageSize> out;
  for (const auto& [height, width] : config.UintPairs(key, std::move(fallback), 1, kMaxSide)) {
    out.push_back({static_cast<uint32_t>(width), static_cast<uint32_t>(height)});
  }
  return out;
}

absl::StatusOr<std::vector<ImageSize>> TileResolutions(const ConfigFile& config, std::string_view key,
                                                       std::vector<ImageSize> listed, ImageSize tile) {
  if (listed.empty() || listed.size() > kMaxResolutions) {
    return config.Error(key, absl::StrCat("has ", listed.size(), " resolutions"));
  }
  for (const ImageSize& size : listed) {
    if (size.width % tile.width == 0 && size.height % tile.height == 0) continue;
    return config.Error(key, absl::StrCat("has [", size.height, ", ", size.width,
                                          "], not a multiple of a tile's ", tile.width, " pixels"));
  }
  return listed;
}

// For each resolution: how many of the picture's pixels it keeps (all of them, if it does not reduce the
// picture), and how many pixels of the resolution show none. Sides are cut to whole pixels before they are
// multiplied, as in select_best_resolution.
ImageSize BestResolution(ImageSize picture, std::span<const ImageSize> resolutions) {
  const double width = picture.width, height = picture.height;
  ImageSize best = resolutions.front();
  double most_kept = 0, least_wasted = INFINITY;
  for (const ImageSize& size : resolutions) {
    const double scale = std::min(size.width / width, size.height / height);
    const double kept = std::min(std::trunc(width * scale) * std::trunc(height * scale), width * height);
    const double wasted = static_cast<double>(size.width) * size.height - kept;
    if (kept < most_kept || (kept == most_kept && wasted >= least_wasted)) continue;
    most_kept = kept, least_wasted = wasted, best = size;
  }
  return best;
}

ImageSize FittingSize(ImageSize picture, ImageSize resolution) {
  const double across = static_cast<double>(resolution.width) / picture.width;
  const double down = static_cast<double>(resolution.height) / picture.height;
  const auto within = [](double side, uint32_t most) {
    return static_cast<uint32_t>(std::min<double>(std::ceil(side), most));
  };
  if (across < down) return {resolution.width, within(picture.height * across, resolution.height)};
  return {within(picture.width * down, resolution.width), resolution.height};
}

// unpad_image: a picture wider than the grid has padding above and below, a higher one left and right. The
// height (width) that the picture has in patches follows from its shape, and half of the difference is cut
// off at each side, so an odd difference leaves one row (column) of padding.
ImageSize ShownPatches(ImageSize picture, ImageSize tiles, ImageSize patches) {
  uint32_t height = patches.height * tiles.height, width = patches.width * tiles.width;
  const double shape = static_cast<double>(picture.width) / picture.height;
  if (shape > static_cast<double>(width) / height) {
    const uint32_t shown = TruncatedAt7(picture.height * (static_cast<double>(width) / picture.width));
    height -= (height - shown) / 2 * 2;
  } else {
    const uint32_t shown = TruncatedAt7(picture.width * (static_cast<double>(height) / picture.height));
    width -= (width - shown) / 2 * 2;
  }
  return {width, height};
}

TileCut FittingTiles(ImageSize picture, ImageSize resolution, ImageSize tile, ResizeFilter filter) {
  TileCut tiles{{.resized = FittingSize(picture, resolution), .filter = filter, .window = resolution},
                resolution.width / tile.width,
                resolution.height / tile.height,
                {}};
  tiles.target.left = -static_cast<int32_t>((resolution.width - tiles.target.resized.width) / 2);
  tiles.target.top = -static_cast<int32_t>((resolution.height - tiles.target.resized.height) / 2);
  return tiles;
}

absl::StatusOr<LlavaNextPictures> ReadLlavaNext(ConfigFile config, ConfigFile& outer,
                                                const FamilySource& source) {
  TileSettings settings;
  settings.family = "llava_next";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kShortestEdge, {.shortest_edge = kSide});
  const SideSizes crop =
      ReadSideSizes(config, "crop_size", NumberIs::kSquare, {.height = kSide, .width = kSide});
  const std::vector<ImageSize> listed =
      ReadResolutions(config, kKey, {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}});
  // Tiles already have their size, so these keys do not change them; padding concerns batches only.
  config.Inert({"do_center_crop", "do_pad", "aspect_ratio_setting"});
  config.NotNull({"size", "crop_size", kKey});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(const ImageSize tile, TileOf(config, size, crop));
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<ImageSize> resolutions,
                            TileResolutions(config, kKey, listed, tile));

  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(const LlavaTokens tokens, ReadLlavaTokens(outer, model, /*class_tokens=*/1));
  const ImageSize patches{tile.width / tokens.patch, tile.height / tokens.patch};
  EVENKEEL_ASSIGN_OR_RETURN(settings.patches_per_tile, WholePatches(config, "size", tile, tokens.patch));
  const int64_t whole = int64_t{settings.patches_per_tile} + tokens.extra;
  if (whole <= 0) {
    return config.Error("size",
                        absl::StrCat("is ", tile.width, "x", tile.height, " pixels, which have no token"));
  }
  settings.tile = tile;
  settings.style = {Medium::kImage, "", tokens.placeholder, "", /*mrope=*/false};
  settings.numbers = {ImageSizes()};

  settings.tokens = [=](ImageSize picture) {
    const ImageSize best = BestResolution(picture, resolutions);
    const ImageSize tiles{best.width / tile.width, best.height / tile.height};
    const ImageSize shown = ShownPatches(picture, tiles, patches);
    return whole + uint64_t{shown.height} * shown.width + shown.height;  // one after every row
  };
  settings.cuts = [=, filter = settings.pixels.filter](ImageSize picture) {
    return std::vector<TileCut>{{{.resized = tile, .filter = filter}, 1, 1, {}},
                                FittingTiles(picture, BestResolution(picture, resolutions), tile, filter)};
  };
  LlavaNextPictures out;
  out.tokens = tokens;
  EVENKEEL_ASSIGN_OR_RETURN(out.pictures, MakeTiles(std::move(settings), source.limits));
  return out;
}

MadeFamily MakeLlavaNext(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  EVENKEEL_ASSIGN_OR_RETURN(LlavaNextPictures made, ReadLlavaNext(std::move(config), outer, source));
  return std::move(made.pictures);
}

}  // namespace evenkeel::preprocess
