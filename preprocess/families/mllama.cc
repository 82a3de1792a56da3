// Llama 3.2 Vision: the picture in the grid of tiles that scales it least, with black to the right and below.
// The text attends to it by cross attention, so it has one token, whatever the number of its tiles.
//
// The rules are those of transformers' models/mllama/{image_processing,processing}_mllama.py. Tiles are not
// padded to max_image_tiles here; aspect_ratio_mask gives their number, from which a trainer also builds the
// model's cross_attention_mask.
#include "preprocess/families/mllama.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 16;

// All grids of at most `max_tiles` tiles, in the order of the model's aspect ratio ids, which begin at 1.
std::vector<TileGrid> Grids(uint32_t max_tiles) {
  std::vector<TileGrid> out;
  for (uint32_t rows = 1; rows <= max_tiles; ++rows) {
    for (uint32_t columns = 1; columns * rows <= max_tiles; ++columns) out.push_back({columns, rows});
  }
  return out;
}

}  // namespace

TileGrid MllamaGrid(ImageSize picture, uint32_t max_tiles, uint32_t tile) {
  return LeastScaledGrid<double>(picture, Grids(max_tiles), tile);
}

// get_image_size_fit_to_canvas: each side is between one tile and the canvas; the factor that fits first
// decides, and the other side is rounded down.
ImageSize MllamaSize(ImageSize picture, ImageSize canvas, uint32_t tile) {
  const uint32_t width = std::clamp(picture.width, tile, canvas.width);
  const uint32_t height = std::clamp(picture.height, tile, canvas.height);
  const double across = static_cast<double>(width) / picture.width;
  const double down = static_cast<double>(height) / picture.height;
  const auto within = [](double side, uint32_t most) {
    return std::min(std::max(static_cast<uint32_t>(std::floor(side)), 1u), most);
  };
  if (across < down) return {width, within(picture.height * across, height)};
  return {within(picture.width * down, width), height};
}

MadeFamily MakeMllama(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "mllama";
  EVENKEEL_ASSIGN_OR_RETURN(
      settings.pixels, ReadPixelSettings(config, source.spec, kHalves, kHalves, ResizeFilter::kBilinear));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = 224, .width = 224});
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_image_tiles", 4, 1, kMaxTiles));
  config.Pin("do_pad", true);
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.NotNull({"size", "max_image_tiles"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t tile, SquareSide(config, "size", size));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t patch, VisionPatchSize(source.checkpoint, 14));
  settings.tile = {tile, tile};
  EVENKEEL_ASSIGN_OR_RETURN(settings.patches_per_tile, WholePatches(config, "size", settings.tile, patch));
  settings.tokens = [](const TiledPicture&) { return uint64_t{1}; };
  settings.style = {.placeholder = "<|image|>"};
  settings.cuts = [=, filter = settings.pixels.filter](ImageSize picture) {
    const TileGrid grid = MllamaGrid(picture, max_tiles, tile);
    const ImageSize canvas = grid.Canvas({tile, tile});
    return std::vector<TileCut>{
        {{.resized = MllamaSize(picture, canvas, tile), .filter = filter, .window = canvas},
         grid.columns,
         grid.rows,
         {}}};
  };
  settings.numbers = {{"aspect_ratio_ids",
                       {},
                       [=](const TiledPicture& picture, const auto&, std::span<int64_t> out) {
                         const std::vector<TileGrid> grids = Grids(max_tiles);
                         const auto found =
                             std::find(grids.begin(), grids.end(), MllamaGrid(picture, max_tiles, tile));
                         out[0] = found - grids.begin() + 1;
                       }},
                      {"aspect_ratio_mask",
                       {max_tiles},
                       [=](const TiledPicture&, const std::vector<TileCut>& cuts, std::span<int64_t> out) {
                         const uint32_t tiles = cuts.front().columns * cuts.front().rows;
                         for (uint32_t i = 0; i < out.size(); ++i) out[i] = i < tiles ? 1 : 0;
                       }}};
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
