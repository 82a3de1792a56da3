// Ovis2: the picture as one tile, then, if the grid has several, its tiles in rows from the left, with tokens between
// columns and rows.
//
// The rules are those of transformers' models/ovis2/{image_processing,processing}_ovis2.py (4.57 also: ..._fast.py).
#include "preprocess/families/ovis2.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/internvl.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kSide = 384, kMaxTiles = 64;
constexpr double kCovered = 0.9;
// Indices into MediumStyle::tokens.
constexpr uint32_t kBegin = 0, kGrid = 1, kColumn = 2, kRow = 3, kEnd = 4;

// compute_patch_covering_area: what a tile covers of a region of the picture; the region's longer side is reduced to a
// tile's side. In the original's doubles.
double CoveredArea(uint32_t width, uint32_t height, uint32_t side) {
  double longer = std::max(width, height), shorter = std::min(width, height);
  if (longer > side) shorter = shorter / longer * side, longer = side;
  return longer * shorter;
}

// The share of the picture that the tiles of `grid` cover. As in the original, the grid's columns divide the height and
// its rows the width here.
double CoveredShare(ImageSize picture, TileGrid grid, uint32_t side) {
  const uint32_t high = picture.height / grid.columns, wide = picture.width / grid.rows;
  double sum = 0;
  for (uint32_t y = 0; y < grid.columns; ++y) {
    const uint32_t height = y + 1 == grid.columns ? picture.height - y * high : high;
    for (uint32_t x = 0; x < grid.rows; ++x) {
      sum += CoveredArea(x + 1 == grid.rows ? picture.width - x * wide : wide, height, side);
    }
  }
  return sum / (static_cast<double>(picture.width) * picture.height);
}

// The number of placeholders per tile, from the processor's own file.
absl::StatusOr<uint32_t> ReadTokens(const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  const auto tokens = static_cast<uint32_t>(outer.Uint("image_seq_length", 256, 1, 1 << 16));
  outer.NotNull({"image_seq_length"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer, {{"image_token", "<image>"}}));
  return tokens;
}

}  // namespace

TileGrid CoveringTileGrid(ImageSize picture, uint32_t side, uint32_t max_tiles) {
  TileGrid fewest, most;
  double of_fewest = 0, of_most = -1;
  for (const TileGrid& grid : GridsByArea(1, max_tiles)) {
    const double share = CoveredShare(picture, grid, side);
    if (share > of_most) of_most = share, most = grid;
    if (share <= kCovered) continue;
    const bool is_better = grid.tiles() == fewest.tiles() && share > of_fewest;
    if (fewest.tiles() == 0 || is_better) of_fewest = share, fewest = grid;
  }
  return fewest.tiles() != 0 ? fewest : most;
}

MadeFamily MakeOvis2(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "ovis2";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = kSide, .width = kSide});
  const bool tiled = config.Flag("crop_to_patches", false);
  const bool by_cover = config.Flag("use_covering_area_grid", true);
  const auto min_tiles = static_cast<uint32_t>(config.Uint("min_patches", 1, 1, kMaxTiles));
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_patches", 12, 1, kMaxTiles));
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "crop_to_patches", "use_covering_area_grid", "min_patches", "max_patches"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (min_tiles > max_tiles) return config.Error("min_patches", "is above max_patches");
  EVENKEEL_RETURN_IF_ERROR(SetSquareTile(config, size, source.checkpoint, 14, settings));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t tokens, ReadTokens(source));
  const ImageSize tile = settings.tile;
  settings.tokens_per_tile = tokens;
  settings.style = {.placeholder = "<IMG_ATOM>",
                    .tokens = {"<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"},
                    .in_template = "<image>"};
  const auto grid_of = [=](ImageSize picture) {
    if (!tiled || max_tiles == 1) return TileGrid{1, 1};
    return by_cover ? CoveringTileGrid(picture, tile.width, max_tiles)
                    : NearestTileGrid(picture, tile, min_tiles, max_tiles);
  };
  settings.runs = [=](ImageSize picture, std::vector<PlaceholderRun>& runs) {
    const TileGrid grid = grid_of(picture);
    runs.push_back({.token = kBegin});
    runs.push_back({.rows = tokens});
    runs.push_back({.token = kGrid});
    for (uint32_t i = 0; grid.tiles() > 1 && i < grid.tiles(); ++i) {
      if (i != 0) runs.push_back({.token = i % grid.columns == 0 ? kRow : kColumn});
      runs.push_back({.rows = tokens});
    }
    runs.push_back({.token = kEnd});
  };
  settings.cuts = [=, filter = settings.pixels.filter](ImageSize picture) {
    std::vector<TileCut> cuts = GridThenWhole(grid_of(picture), tile, filter);
    std::reverse(cuts.begin(), cuts.end());  // the whole picture first
    return cuts;
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
