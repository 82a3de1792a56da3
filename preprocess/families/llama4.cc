// Llama 4: the picture in the grid of tiles that scales it least, with black to the right and below, and the
// whole picture as an additional tile if there are several. Values are rounded to bfloat16 after every step.
//
// The rules are those of transformers' models/llama4/{image_processing,processing}_llama4.py, whose only
// image processor is torchvision's.
#include "preprocess/families/llama4.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;
// Indices into MediumStyle::tokens.
constexpr uint32_t kBegin = 0, kWhole = 1, kEnd = 2, kBetween = 3, kRowEnd = 4;

// A scale factor as the original computes it: a Python float, or, if `single`, a float32 tensor, which
// Python's operators keep in float32. The two differ in the last bits, which can change a size by a pixel.
struct Scale {
  double value = 0;
  bool single = false;

  Scale(uint32_t to, uint32_t from, bool is_single) : single(is_single) {
    value = single ? static_cast<double>(static_cast<float>(to) / static_cast<float>(from))
                   : static_cast<double>(to) / from;
  }
  bool operator<(const Scale& other) const {
    if (!single && !other.single) return value < other.value;
    return static_cast<float>(value) < static_cast<float>(other.value);
  }
  uint32_t Of(uint32_t side) const {
    const double product =
        single ? static_cast<double>(static_cast<float>(side) * static_cast<float>(value)) : side * value;
    return static_cast<uint32_t>(std::floor(product));
  }
};

void WriteRuns(TileGrid grid, uint32_t tokens, std::vector<PlaceholderRun>& runs) {
  runs.push_back({.token = kBegin});
  for (uint32_t row = 0; grid.tiles() > 1 && row < grid.rows; ++row) {
    for (uint32_t column = 0; column < grid.columns; ++column) {
      if (column != 0) runs.push_back({.token = kBetween});
      runs.push_back({.rows = tokens});
    }
    runs.push_back({.token = kRowEnd});
  }
  runs.push_back({.token = kWhole});
  runs.push_back({.rows = tokens});
  runs.push_back({.token = kEnd});
}

// The token settings of the processor's own file. A tile has (side / patch)^2 patches, of which the pixel
// shuffle makes one token each out of 1 / ratio^2.
struct Llama4Tokens {
  uint32_t patch = 14;
  uint32_t per_tile = 0;
};

absl::StatusOr<Llama4Tokens> ReadTokens(const FamilySource& source, uint32_t tile) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  Llama4Tokens out;
  out.patch = static_cast<uint32_t>(outer.Uint("patch_size", 14, 1, 256));
  const double ratio = outer.Real("pixel_shuffle_ratio", 0.5);
  outer.NotNull({"patch_size", "pixel_shuffle_ratio"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer, {{"fake_image_token", "<|image|>"},
                                               {"image_token", "<|image|>"},
                                               {"start_of_image_token", "<|image_start|>"},
                                               {"end_of_image_token", "<|image_end|>"},
                                               {"patch_token", "<|patch|>"},
                                               {"tile_x_separator_token", "<|tile_x_separator|>"},
                                               {"tile_y_separator_token", "<|tile_y_separator|>"}}));
  if (!(ratio > 0 && ratio <= 1)) return outer.Error("pixel_shuffle_ratio", "is not between 0 and 1");
  const double fewer = std::nearbyint(1.0 / (ratio * ratio));
  out.per_tile = static_cast<uint32_t>(
      std::floor(double{static_cast<double>(tile / out.patch)} * (tile / out.patch) / fewer));
  if (out.per_tile == 0)
    return outer.Error("patch_size",
                       absl::StrCat("is too large: a tile of ", tile, " pixels would have no token"));
  return out;
}

}  // namespace

std::vector<TileGrid> Llama4Grids(uint32_t max_tiles) {
  // Grouped by shape, in the order in which shapes first occur; that order breaks ties between grids.
  std::vector<std::pair<double, std::vector<TileGrid>>> by_shape;
  for (uint32_t tiles = max_tiles; tiles > 0; --tiles) {
    for (uint32_t rows = 1; rows <= tiles; ++rows) {
      if (tiles % rows != 0) continue;
      const TileGrid grid{tiles / rows, rows};
      const double shape = static_cast<double>(grid.rows) / grid.columns;
      auto found =
          std::find_if(by_shape.begin(), by_shape.end(), [&](const auto& one) { return one.first == shape; });
      if (found == by_shape.end()) found = by_shape.insert(by_shape.end(), {shape, {}});
      found->second.push_back(grid);
    }
  }
  std::vector<TileGrid> out;
  for (const auto& [shape, grids] : by_shape) out.insert(out.end(), grids.begin(), grids.end());
  return out;
}

ImageSize Llama4Size(ImageSize picture, ImageSize canvas, uint32_t tile, bool to_largest) {
  // In the original, a side of the canvas is a tensor, and a side of the picture is a Python number.
  const auto limited = [&](uint32_t side, uint32_t of_canvas) {
    const uint32_t wanted = std::max(side, tile);
    const bool tensor = to_largest || of_canvas < wanted;
    return std::pair(tensor ? of_canvas : wanted, tensor);
  };
  const auto [height, height_is_tensor] = limited(picture.height, canvas.height);
  const auto [width, width_is_tensor] = limited(picture.width, canvas.width);
  const Scale across(width, picture.width, width_is_tensor), down(height, picture.height, height_is_tensor);
  const ImageSize size = across < down ? ImageSize{width, std::min(across.Of(picture.height), height)}
                                       : ImageSize{std::min(down.Of(picture.width), width), height};
  return {std::max(size.width, 1u), std::max(size.height, 1u)};
}

MadeFamily MakeLlama4(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "llama4";
  EVENKEEL_ASSIGN_OR_RETURN(
      settings.pixels, ReadPixelSettings(config, source.spec, kHalves, kHalves, ResizeFilter::kBilinear));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = 336, .width = 336});
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_patches", 16, 1, kMaxTiles));
  const bool to_largest = config.Flag("resize_to_max_canvas", false);
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) config.Pin(key, true);
  for (const char* key : {"do_center_crop", "do_pad"}) config.Pin(key, false);
  config.NotNull({"size", "max_patches", "resize_to_max_canvas"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t tile, SquareSide(config, "size", size));
  EVENKEEL_ASSIGN_OR_RETURN(const Llama4Tokens tokens, ReadTokens(source, tile));

  settings.pixels.in_bf16 = true;
  settings.tile = {tile, tile};
  settings.patches_per_tile = (tile / tokens.patch) * (tile / tokens.patch);
  settings.tokens_per_tile = tokens.per_tile;
  settings.style = {.placeholder = "<|patch|>",
                    .tokens = {"<|image_start|>", "<|image|>", "<|image_end|>", "<|tile_x_separator|>",
                               "<|tile_y_separator|>"},
                    .in_template = "<|image|>"};
  // The original's scale factors are tensors of float32.
  const auto grid_of = [=, grids = Llama4Grids(max_tiles)](ImageSize picture) {
    return LeastScaledGrid<float>(picture, grids, tile, to_largest);
  };
  settings.runs = [=](ImageSize picture, std::vector<PlaceholderRun>& runs) {
    WriteRuns(grid_of(picture), tokens.per_tile, runs);
  };
  settings.cuts = [=, filter = settings.pixels.filter](ImageSize picture) {
    const TileGrid grid = grid_of(picture);
    const ImageSize canvas = grid.Canvas({tile, tile});
    std::vector<TileCut> cuts = GridThenWhole(grid, {tile, tile}, filter);
    cuts.front().target.resized = Llama4Size(picture, canvas, tile, to_largest);
    cuts.front().target.window = canvas;
    return cuts;
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
