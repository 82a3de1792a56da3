// InternVL's own repositories (model_type internvl_chat), whose pictures their own code cuts: InternVL's tiles by
// Pillow's bicubic filter, divided by 255 and normalised in single precision.
//
// The rules are those of dynamic_preprocess and build_transform in internvl_chat/internvl/train/dataset.py of the
// project InternVL, without the JPEG noise that its training adds.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/internvl.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;
constexpr std::array<double, 3> kMean = {0.485, 0.456, 0.406}, kStd = {0.229, 0.224, 0.225};  // ImageNet's

// Whether a picture can be equally far from two grids of one area, of which the original takes the one that comes last in
// its hash table: that is so if no other grid's shape is between theirs.
bool HasTies(const std::vector<TileGrid>& grids) {
  const auto wider = [](TileGrid a, TileGrid b) { return a.columns * b.rows > b.columns * a.rows; };
  for (const TileGrid& narrow : grids) {
    for (const TileGrid& wide : grids) {
      if (narrow.tiles() != wide.tiles() || !wider(wide, narrow)) continue;
      const bool between = std::any_of(grids.begin(), grids.end(), [&](TileGrid grid) {
        return wider(grid, narrow) && wider(wide, grid);
      });
      if (!between) return true;
    }
  }
  return false;
}

}  // namespace

MadeFamily MakeInternVlChat(ConfigFile model, const FamilySource& source) {
  TileSettings settings;
  settings.family = "internvl_chat";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(model, source.spec, kMean, kStd));
  settings.pixels.by_division = true;
  const auto own_side = static_cast<uint32_t>(model.UintIn("vision_config", "image_size", 448, 1, 4096));
  const auto side = static_cast<uint32_t>(model.Uint("force_image_size", own_side, 1, 4096));
  const uint32_t patch = VisionPatchSize(model, 14);
  const double ratio = model.Real("downsample_ratio", 0.5);
  const bool tiled = model.Flag("dynamic_image_size", false);
  const bool thumbnail = model.Flag("use_thumbnail", false);
  const auto min_tiles = static_cast<uint32_t>(model.Uint("min_dynamic_patch", 1, 1, kMaxTiles));
  const auto max_tiles = static_cast<uint32_t>(model.Uint("max_dynamic_patch", 6, 1, kMaxTiles));
  model.Pin("pad2square", false);
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  if (min_tiles > max_tiles) return model.Error("min_dynamic_patch", "is above max_dynamic_patch");
  if (tiled && HasTies(GridsByArea(min_tiles, max_tiles))) {
    return model.Error(
        "min_dynamic_patch",
        absl::StrCat("with min_dynamic_patch ", min_tiles, " and max_dynamic_patch ", max_tiles,
                     " the grid of some pictures depends on the order of a hash table"));
  }
  settings.tile = {side, side};
  EVENKEEL_ASSIGN_OR_RETURN(settings.patches_per_tile,
                            WholePatches(model, "force_image_size", settings.tile, patch));
  const double tokens = std::trunc(settings.patches_per_tile * (ratio * ratio));
  if (!(ratio > 0) || !(tokens >= 1) || tokens > 1 << 16) {
    return model.Error("downsample_ratio",
                       absl::StrCat("is ", ratio, ", by which a tile has no token, or too many"));
  }
  settings.tokens_per_tile = static_cast<uint32_t>(tokens);
  settings.style = {Medium::kImage, "<img>", "<IMG_CONTEXT>", "</img>", /*mrope=*/false};
  settings.cuts = [=, tile = settings.tile, filter = settings.pixels.filter](ImageSize picture) {
    const TileGrid grid = tiled ? NearestTileGrid(picture, tile, min_tiles, max_tiles) : TileGrid{1, 1};
    std::vector<TileCut> cuts = GridThenWhole(grid, tile, filter);
    if (!thumbnail) cuts.resize(1);
    return cuts;
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
