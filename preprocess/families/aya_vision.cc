// Aya Vision: InternVL's tiles with a numbered token before each, and a token before the whole picture, which
// is last.
//
// The rules are those of transformers' models/aya_vision/processing_aya_vision.py, which asks
// GotOcr2ImageProcessor for tiles, whatever its file has.
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
// Indices into MediumStyle::tokens; the tiles' tokens follow.
constexpr uint32_t kBegin = 0, kWhole = 1, kEnd = 2, kFirstTile = 3;

// The number of placeholders per tile, from the processor's own file.
absl::StatusOr<uint32_t> ReadTokens(const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  const auto patch = static_cast<uint32_t>(outer.Uint("patch_size", 28, 1, 1024));
  const auto fewer = static_cast<uint32_t>(outer.Uint("downsample_factor", 1, 1, 64));
  const auto side = static_cast<uint32_t>(outer.Uint("img_size", 364, 1, 16384));
  outer.NotNull({"patch_size", "downsample_factor", "img_size"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer, {{"image_token", "<image>"},
                                               {"start_of_img_token", "<|START_OF_IMG|>"},
                                               {"end_of_img_token", "<|END_OF_IMG|>"},
                                               {"img_patch_token", "<|IMG_PATCH|>"},
                                               {"img_line_break_token", "<|IMG_LINE_BREAK|>"},
                                               {"tile_token", "TILE"},
                                               {"tile_global_token", "TILE_GLOBAL"}}));
  const uint32_t tokens = side / (patch * fewer);
  if (tokens == 0) return outer.Error("img_size", "is smaller than one token");
  return tokens * tokens;
}

}  // namespace

MadeFamily MakeAyaVision(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "aya_vision";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = 384, .width = 384});
  const auto min_tiles = static_cast<uint32_t>(config.Uint("min_patches", 1, 1, kMaxTiles));
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_patches", 12, 1, kMaxTiles));
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "min_patches", "max_patches"});
  config.Inert({"crop_size", "crop_to_patches"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (min_tiles > max_tiles) return config.Error("min_patches", "is above max_patches");
  EVENKEEL_RETURN_IF_ERROR(SetSquareTile(config, size, source.checkpoint, 14, settings));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t tokens, ReadTokens(source));
  const ImageSize tile = settings.tile;
  settings.tokens_per_tile = tokens;
  settings.style = {.placeholder = "<|IMG_PATCH|>",
                    .tokens = {"<|START_OF_IMG|>", "TILE_GLOBAL", "<|END_OF_IMG|>"},
                    .in_template = "<image>"};
  for (uint32_t i = 1; i <= max_tiles; ++i) settings.style.tokens.push_back(absl::StrCat("TILE_", i));
  settings.runs = [=](ImageSize picture, std::vector<PlaceholderRun>& runs) {
    const TileGrid grid = NearestTileGrid(picture, tile, min_tiles, max_tiles);
    const uint32_t tiles = grid.tiles();
    runs.push_back({.token = kBegin});
    for (uint32_t i = 0; tiles > 1 && i < tiles; ++i) {
      runs.push_back({.token = kFirstTile + i});
      runs.push_back({.rows = tokens});
    }
    runs.push_back({.token = kWhole});
    runs.push_back({.rows = tokens});
    runs.push_back({.token = kEnd});
  };
  settings.cuts = [=, filter = settings.pixels.filter](ImageSize picture) {
    const TileGrid grid = NearestTileGrid(picture, tile, min_tiles, max_tiles);
    return GridThenWhole(grid, tile, filter);
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
