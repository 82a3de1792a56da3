// LLaVA-NeXT: the resolution that is chosen for a picture, and the picture's size in it. LLaVA-OneVision has
// the same rules.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/tiles.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The one of `resolutions`, which is not empty, that keeps most of the picture's pixels; among equals the one
// that wastes the fewest.
ImageSize BestResolution(ImageSize picture, std::span<const ImageSize> resolutions);

// The largest size with the picture's shape within `resolution`.
ImageSize FittingSize(ImageSize picture, ImageSize resolution);

// The grid of patches of all tiles, `patches` per side of a tile, without rows or columns of padding.
ImageSize ShownPatches(ImageSize picture, ImageSize tiles, ImageSize patches);

// The picture centred in `resolution`, with black around it, as tiles.
TileCut FittingTiles(ImageSize picture, ImageSize resolution, ImageSize tile, ResizeFilter filter);

// The resolutions that the file lists under `key`, {height, width} each, or `usual` without the key.
std::vector<ImageSize> ReadResolutions(ConfigFile& config, std::string_view key,
                                       const std::vector<ImageSize>& usual);
// `listed`, if each is a multiple of the tile. InvalidArgument otherwise, or if there are none.
absl::StatusOr<std::vector<ImageSize>> TileResolutions(const ConfigFile& config, std::string_view key,
                                                       std::vector<ImageSize> listed, ImageSize tile);

}  // namespace evenkeel::preprocess
