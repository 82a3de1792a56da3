// LLaVA-NeXT: which resolution a picture is given, and what it is there. LLaVA-OneVision has the same rules.
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

// The one of `resolutions`, of which there is one, that keeps most of the picture's pixels; of those the one
// that wastes the fewest.
ImageSize BestResolution(ImageSize picture, std::span<const ImageSize> resolutions);

// The largest size of the picture's shape within `resolution`.
ImageSize FittingSize(ImageSize picture, ImageSize resolution);

// The grid of patches of all tiles, `patches` of them to a side of a tile, without rows or columns of nothing
// but padding.
ImageSize ShownPatches(ImageSize picture, ImageSize tiles, ImageSize patches);

// The picture in the middle of `resolution`, black around it, as tiles.
TileCut FittingTiles(ImageSize picture, ImageSize resolution, ImageSize tile, ResizeFilter filter);

// The resolutions that the file lists under `key`, {height, width} each, or `usual` where it lists none.
// InvalidArgument: one that is not in whole tiles.
absl::StatusOr<std::vector<ImageSize>> TileResolutions(const ConfigFile& config, std::string_view key,
                                                       std::span<const std::pair<uint64_t, uint64_t>> pairs,
                                                       ImageSize tile, const std::vector<ImageSize>& usual);

}  // namespace evenkeel::preprocess
