// Cohere's Command A Vision: the picture is stretched to the grid of tiles that enlarges it least; the whole
// picture is added as the last tile if there are several.
//
// The rules are those of transformers' models/cohere2_vision/{image_processing,processing}_cohere2_vision.py,
// whose only image processor is torchvision's.
#include <utility>
#include <vector>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;
// Indices into MediumStyle::tokens.
constexpr uint32_t kBegin = 0, kTileEnd = 1, kEnd = 2;

}  // namespace

MadeFamily MakeCohere2Vision(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "cohere2_vision";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = 512, .width = 512});
  const bool tiled = config.Flag("crop_to_patches", true);
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_patches", 12, 1, kMaxTiles));
  const auto side_tokens = static_cast<uint32_t>(config.Uint("patch_size", 16, 1, 256));
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "crop_to_patches", "max_patches", "patch_size"});
  config.Inert({"crop_size", "min_patches"});  // the minimum number of tiles has no effect in the original
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(SetSquareTile(config, size, source.checkpoint, 16, settings));
  const ImageSize tile = settings.tile;
  const uint32_t tokens = side_tokens * side_tokens;
  settings.tokens_per_tile = tokens;
  settings.style = {.placeholder = "<|IMG_PATCH|>",
                    .tokens = {"<|START_OF_IMG|>", "<|IMG_LINE_BREAK|>", "<|END_OF_IMG|>"}};
  const auto grid_of = [=, grids = GridsByArea(1, max_tiles)](ImageSize picture) {
    return tiled ? LeastScaledGrid<double>(picture, grids, tile.width) : TileGrid{1, 1};
  };
  settings.runs = [=](ImageSize picture, std::vector<PlaceholderRun>& runs) {
    const uint32_t tiles = grid_of(picture).tiles();
    runs.push_back({.token = kBegin});
    for (uint32_t i = 0; i < tiles + (tiles > 1 ? 1 : 0); ++i) {
      runs.push_back({.rows = tokens});
      runs.push_back({.token = kTileEnd});
    }
    runs.push_back({.token = kEnd});
  };
  settings.cuts = [=, filter = settings.pixels.filter](ImageSize picture) {
    return GridThenWhole(grid_of(picture), tile, filter);
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
