// Llama 4: the grid of tiles that a picture is placed in, and its size there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// All grids of at most `max_tiles` tiles, as columns x rows, in the order that breaks ties.
std::vector<ImageSize> Llama4Grids(uint32_t max_tiles);

// The grid that enlarges the picture least, or most if `to_largest`; if all reduce it, the one that reduces
// it least. The smallest among equals.
ImageSize Llama4Grid(ImageSize picture, std::span<const ImageSize> grids, uint32_t tile, bool to_largest);

// The picture's size within `canvas`, in pixels: enlarged at most to one tile, unless `to_largest`.
ImageSize Llama4Size(ImageSize picture, ImageSize canvas, uint32_t tile, bool to_largest);

}  // namespace evenkeel::preprocess
