// LLaVA-NeXT: the resolution that is chosen for a picture, and the picture's size in it. LLaVA-OneVision has
// the same rules, LLaVA-NeXT-Video the same pictures.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/families.h"
#include "preprocess/families/llava.h"
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

// The pictures of a folder, and its processor's settings of placeholders.
struct LlavaNextPictures {
  std::unique_ptr<MediaFamily> pictures;
  LlavaTokens tokens;
};
// Reads and finishes `config`, the image processor's file, and `outer`, the processor's own. InvalidArgument: a wrong
// value or an unknown key.
absl::StatusOr<LlavaNextPictures> ReadLlavaNext(ConfigFile config, ConfigFile& outer,
                                                const FamilySource& source);

}  // namespace evenkeel::preprocess
