// Perception-LM: the whole picture as one tile, then the picture stretched to the grid that fits
// it best. Its videos are not implemented.
//
// The rules are those of transformers' models/perception_lm/{image_processing,processing}_perception_lm.py,
// whose only image processor is torchvision's.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/llama4.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;

// Grids as columns x rows in the original's order, by shape; there the later one wins a tie.
std::vector<TileGrid> Grids(uint32_t max_tiles) {
  std::vector<TileGrid> out = Llama4Grids(max_tiles);
  for (TileGrid& grid : out) std::swap(grid.columns, grid.rows);  // the original's order begins with columns
  return out;
}

// The picture's size in a canvas, keeping its shape; only one side is rounded down. The other stays a
// fraction of a pixel, with which the original goes on.
std::pair<double, double> SizeWithin(ImageSize picture, double width, double height) {
  const double shape = static_cast<double>(picture.width) / picture.height;
  const double scale = std::min(width / picture.width, height / picture.height);
  if (shape > 1) {
    const double wide = scale * picture.width;
    return {wide, std::floor(wide / shape)};
  }
  const double high = scale * picture.height;
  return {std::floor(high * shape), high};
}

// The grid that contains the picture and in which its shorter side is longest; nullopt if none contains it.
std::optional<TileGrid> GridAround(ImageSize picture, const std::vector<TileGrid>& grids, uint32_t tile) {
  const bool high = static_cast<double>(picture.width) / picture.height < 1;
  std::optional<TileGrid> best;
  double longest = 0;
  for (const TileGrid& grid : grids) {
    const auto [width, height] = grid.Canvas({tile, tile});
    if (width < picture.width || height < picture.height) continue;
    const auto [wide, tall] = SizeWithin(picture, width, height);
    const double shorter = high ? wide : tall;
    if (best.has_value() && shorter < longest) continue;
    best = grid;
    longest = shorter;
  }
  return best;
}

// The largest grid of the shape nearest to the picture's, wide for wide pictures and high for high ones.
TileGrid GridOfShape(ImageSize picture, const std::vector<TileGrid>& grids) {
  const double shape = static_cast<double>(picture.width) / picture.height;
  TileGrid best;
  double nearest = INFINITY;
  for (const TileGrid& grid : grids) {
    const double own = static_cast<double>(grid.columns) / grid.rows;
    if (shape >= 1 ? own > shape : own <= shape) continue;
    const double away = shape >= 1 ? std::abs(own - shape) : std::abs(1 / own - 1 / shape);
    const double best_shape = best.columns == 0 ? 0 : static_cast<double>(best.columns) / best.rows;
    const bool larger =
        own == best_shape && (shape >= 1 ? grid.columns > best.columns : grid.rows > best.rows);
    if (away < nearest || larger) best = grid, nearest = away;
  }
  return best;
}

}  // namespace

MadeFamily MakePerceptionLm(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "perception_lm";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kHalves, kHalves));
  const auto tile = static_cast<uint32_t>(config.Uint("tile_size", 448, 1, 16384));
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_num_tiles", 36, 1, kMaxTiles));
  const bool tiled = config.Text("vision_input_type", "thumb+tile") == "thumb+tile";
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"tile_size", "max_num_tiles"});
  config.Inert({"size", "crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishUnusedVideo(source.checkpoint, {}));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(source.checkpoint, 14));
  patch = static_cast<uint32_t>(outer.Uint("patch_size", patch, 1, 256));
  const auto pool = static_cast<uint32_t>(outer.Uint("pooling_ratio", 2, 1, 64));
  outer.NotNull({"pooling_ratio"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  const uint32_t side = tile / patch / pool;
  if (side == 0)
    return config.Error("tile_size",
                        absl::StrCat("is too small: a tile of ", tile, " pixels would have no token"));
  settings.tile = {tile, tile};
  settings.patches_per_tile = (tile / patch) * (tile / patch);
  settings.tokens_per_tile = side * side;
  settings.style = {.placeholder = "<|image|>"};
  settings.cuts = [=, filter = settings.pixels.filter, grids = Grids(max_tiles)](ImageSize picture) {
    std::vector<TileCut> cuts = {{{.resized = {tile, tile}, .filter = filter}, 1, 1, {}}};
    if (!tiled) return cuts;
    const TileGrid grid = max_tiles == 1
                              ? TileGrid{1, 1}
                              : GridAround(picture, grids, tile).value_or(GridOfShape(picture, grids));
    cuts.push_back({{.resized = grid.Canvas({tile, tile}), .filter = filter}, grid.columns, grid.rows, {}});
    return cuts;
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
