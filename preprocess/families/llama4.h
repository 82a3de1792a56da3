// Llama 4: the grid of tiles that a picture is put in, and its size there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// Every grid of at most `max_tiles` tiles, columns and rows, in the order that decides between equals.
std::vector<ImageSize> Llama4Grids(uint32_t max_tiles);

// The grid that enlarges the picture least, or most where `to_largest`; where all reduce it, the one that
// reduces it least. Of equals the smallest.
ImageSize Llama4Grid(ImageSize picture, std::span<const ImageSize> grids, uint32_t tile, bool to_largest);

// The picture's size within `canvas`, in pixels: enlarged to a tile at most, unless `to_largest`.
ImageSize Llama4Size(ImageSize picture, ImageSize canvas, uint32_t tile, bool to_largest);

}  // namespace evenkeel::preprocess
