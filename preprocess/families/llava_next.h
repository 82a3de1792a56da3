// LLaVA-NeXT: which resolution a picture is given, and how many placeholders stand for it.
#pragma once

#include <cstdint>
#include <span>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The one of `resolutions`, of which there is one, that keeps most of the picture's pixels; of those the one
// that wastes the fewest.
ImageSize BestResolution(ImageSize picture, std::span<const ImageSize> resolutions);

// The largest size of the picture's shape within `resolution`.
ImageSize FittingSize(ImageSize picture, ImageSize resolution);

// Placeholders of the tiles, without those for the whole picture: the grid's patches, `patches` of them to a
// side of a tile, without rows or columns of nothing but padding, and one behind every row.
uint64_t TiledTokens(ImageSize picture, ImageSize tiles, ImageSize patches);

}  // namespace evenkeel::preprocess
