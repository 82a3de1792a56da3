// Families whose pictures become tiles of one size, [tiles, 3, height, width]: one tile for CLIP, SigLIP and
// LLaVA, several for InternVL. A family defines how a picture is cut; everything else is here.
//
// Thread safety: as MediaFamily.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "preprocess/families/family.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/families/tile_grid.h"

namespace evenkeel::preprocess {

// A picture's size, and the number of pictures in its sample.
struct TiledPicture : ImageSize {
  uint32_t of_sample = 1;  // pictures in its sample
};

// A resized picture (`sink` is ignored), whose window is divided into tiles, row by row from the left.
struct TileCut {
  PictureTarget target;
  uint32_t columns = 1;
  uint32_t rows = 1;
  // Sizes that the picture is resized to one after the other, before the target's, for processors that resize
  // what they have resized. If several cuts have stages, the shorter list must be a prefix of the longer one;
  // then the target has neither a square nor a window.
  std::vector<ImageSize> stages = {};
};

// A field of integers per item that the model needs in addition to the tiles.
struct TileNumbers {
  std::string name;
  std::vector<uint64_t> shape;  // per item; empty: one number
  std::function<void(const TiledPicture&, const std::vector<TileCut>&, std::span<int64_t>)> write;
};
// image_sizes [2]: the picture's height and width, or those after the first cut's resize.
TileNumbers ImageSizes();
TileNumbers ResizedSizes();

struct TileSettings {
  std::string family;  // for messages
  PixelSettings pixels;
  ImageSize tile;                // in pixels
  uint32_t tokens_per_tile = 0;  // placeholders per tile, unless `tokens` computes them from the picture:
  std::function<uint64_t(const TiledPicture&)> tokens;
  uint32_t patches_per_tile = 0;     // the encoder's cost per tile
  uint32_t merge_size = 1;           // MediaFamily::merge_size, of styles with `mrope`
  MediumStyle style;                 // of images
  std::vector<TileNumbers> numbers;  // fields after the pixels
  // The placeholders' runs in the sequence; empty: one run.
  std::function<void(const TiledPicture&, std::vector<PlaceholderRun>&)> runs;
  // How a picture is cut; tiles are in the order of the cuts. Pure. InvalidArgument: the picture is refused.
  std::function<absl::StatusOr<std::vector<TileCut>>(const TiledPicture&)> cuts;
};

// The picture stretched to a grid of tiles, and once more to one tile, the last, if the grid has several.
std::vector<TileCut> GridThenWhole(TileGrid grid, ImageSize tile, ResizeFilter filter);

// Square tiles of the side that `size` of the processor's file has, in patches of the model's config.json
// (else `patch`): sets `tile` and `patches_per_tile`. InvalidArgument: not a square, or not whole patches.
absl::Status SetSquareTile(const ConfigFile& config, const SideSizes& size,
                           const CheckpointFolder& checkpoint, uint32_t patch, TileSettings& settings);

// The error for an item that is not resized and does not have the size of a tile.
absl::Status NotOfItsSize(std::string_view what, ImageSize size, ImageSize tile);

// Fields: pixel_values [tiles, 3, height, width], as u8 [tiles, 3 * height * width], also after expansion;
// then `numbers`. input_rows are tiles. InvalidArgument: a tile is too large for the wire form.
absl::StatusOr<std::unique_ptr<MediaFamily>> MakeTiles(TileSettings settings, const Limits& limits);

}  // namespace evenkeel::preprocess
