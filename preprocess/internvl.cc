// InternVL: dynamic tiles in the grid whose shape is nearest the picture's, and a thumbnail where there are
// several.
//
// The rules are those of transformers' models/got_ocr2/image_processing_got_ocr2.py (candidates sorted by
// area; the original project leaves the order of ties to a hash table) and
// models/internvl/processing_internvl.py.
#include "preprocess/internvl.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "preprocess/families.h"
#include "preprocess/tiles.h"

namespace evenkeel {
namespace {

constexpr uint32_t kMostTiles = 64;

}  // namespace

TileGrid NearestTileGrid(ImageSize picture, ImageSize tile, uint32_t min_tiles, uint32_t max_tiles) {
  std::vector<TileGrid> candidates;
  for (uint32_t columns = 1; columns <= max_tiles; ++columns) {
    for (uint32_t rows = 1; columns * rows <= max_tiles; ++rows) {
      if (columns * rows >= min_tiles) candidates.push_back({columns, rows});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const TileGrid& a, const TileGrid& b) {
    return a.columns * a.rows < b.columns * b.rows;
  });
  const double aspect = static_cast<double>(picture.width) / picture.height;
  const double area = static_cast<double>(picture.width) * picture.height;
  const double tile_area = static_cast<double>(tile.width) * tile.height;
  TileGrid best{1, 1};
  double best_difference = INFINITY;
  for (const TileGrid& grid : candidates) {
    const double difference = std::abs(aspect - static_cast<double>(grid.columns) / grid.rows);
    // Of two that are as near, the larger, unless its tiles cover more than twice the picture's area.
    const bool larger = difference == best_difference && area > 0.5 * tile_area * grid.columns * grid.rows;
    if (difference < best_difference || larger) {
      best_difference = difference;
      best = grid;
    }
  }
  return best;
}

MadeFamily MakeInternVl(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "internvl";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare);
  if (size.height == 0 && size.width == 0) size.height = size.width = 384;
  // InternVLProcessor asks its image processor for tiles, whatever that one's file says.
  const bool asked = config.Text("processor_class", "") == "InternVLProcessor";
  const bool tiled = config.Flag("crop_to_patches", false) || asked;
  const auto min_tiles = static_cast<uint32_t>(config.Uint("min_patches", 1, 1, kMostTiles));
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_patches", 12, 1, kMostTiles));
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "min_patches", "max_patches"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (size.height != size.width || size.shortest_edge != 0) {
    return config.Error("size", "only a square {height, width} is implemented");
  }
  if (min_tiles > max_tiles) return config.Error("min_patches", "is above max_patches");

  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.folder, "processor_config.json"));
  settings.tokens_per_tile = static_cast<uint32_t>(outer.Uint("image_seq_length", 256, 1, 1 << 16));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_RETURN_IF_ERROR(FinishUnusedVideo(
      source.folder, {"initial_shift", "crop_to_patches", "min_patches", "max_patches", "image_seq_length"}));
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(source.folder, 14));
  settings.side = size.width;
  settings.patches_per_tile = (settings.side / patch) * (settings.side / patch);
  settings.style = {Medium::kImage, "<img>", "<IMG_CONTEXT>", "</img>", /*mrope=*/false};

  const ImageSize tile{settings.side, settings.side};
  const ResizeFilter filter = settings.pixels.filter;
  settings.cuts = [=](ImageSize picture) -> std::vector<TileCut> {
    const TileGrid grid = tiled ? NearestTileGrid(picture, tile, min_tiles, max_tiles) : TileGrid{1, 1};
    const ImageSize canvas{tile.width * grid.columns, tile.height * grid.rows};
    std::vector<TileCut> cuts = {{{.resized = canvas, .filter = filter}, grid.columns, grid.rows}};
    if (grid.columns * grid.rows > 1) cuts.push_back({{.resized = tile, .filter = filter}, 1, 1});
    return cuts;
  };
  settings.add_to = [=](CanonicalText& text) {
    text.Add("vision.min_tiles", uint64_t{tiled ? min_tiles : 1});
    text.Add("vision.max_tiles", uint64_t{tiled ? max_tiles : 1});
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel
