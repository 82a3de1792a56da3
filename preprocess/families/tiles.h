// Families whose pictures become tiles of one size, [tiles, 3, height, width]: one for CLIP, SigLIP and
// LLaVA, several for InternVL. A family says how a picture is cut; the rest is here.
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

namespace evenkeel::preprocess {

// A picture and what its sample is.
struct TiledPicture : ImageSize {
  uint32_t of_sample = 1;  // pictures in its sample
};

// A resized picture (`sink` is not looked at), whose window's tiles follow in rows from the left.
struct TileCut {
  PictureTarget target;
  uint32_t columns = 1;
  uint32_t rows = 1;
  // Sizes that the picture is resized to, one after the other, before the target's; the rule that a processor
  // resizes what it has resized. Of several cuts the shorter list begins the longer; then the target has
  // neither a square nor a window.
  std::vector<ImageSize> stages;
};

// Whole numbers of an item that the model asks for with its tiles.
struct TileNumbers {
  std::string name;
  std::vector<uint64_t> shape;  // of an item's; empty: one number
  std::function<void(const TiledPicture&, const std::vector<TileCut>&, std::span<int64_t>)> write;
};
// image_sizes [2]: the picture's height and width, or those of what its first cut resizes it to.
TileNumbers ImageSizes();
TileNumbers ResizedSizes();

struct TileSettings {
  std::string family;  // for the digest
  PixelSettings pixels;
  ImageSize tile;                // in pixels
  uint32_t tokens_per_tile = 0;  // placeholders, where these are not of the picture:
  std::function<uint64_t(const TiledPicture&)> tokens;
  uint32_t patches_per_tile = 0;     // what the encoder computes
  MediumStyle style;                 // of images
  std::vector<TileNumbers> numbers;  // fields after the pixels'
  // How its placeholders stand in the sequence; nothing: one run of all of them.
  std::function<void(const TiledPicture&, std::vector<PlaceholderRun>&)> runs;
  // How a picture of this size is cut; tiles in the order of the cuts. Pure. InvalidArgument: it is refused.
  std::function<absl::StatusOr<std::vector<TileCut>>(const TiledPicture&)> cuts;
  // What `cuts` depends on, for the digest.
  std::function<void(CanonicalText&)> add_to;
};

// InvalidArgument of an item that is not resized and does not have the size of a tile.
absl::Status NotOfItsSize(std::string_view what, ImageSize size, ImageSize tile);

// Fields: pixel_values [tiles, 3, height, width]; as u8 [tiles, 3 * height * width], also once it is
// expanded; then the numbers that are asked for. input_rows are tiles. InvalidArgument: tiles that the wire
// form cannot carry.
absl::StatusOr<std::unique_ptr<MediaFamily>> MakeTiles(TileSettings settings, const Limits& limits);

}  // namespace evenkeel::preprocess
