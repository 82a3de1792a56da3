// Llama 4: the grids of tiles that a picture may be placed in, and its size there.
#pragma once

#include <cstdint>
#include <vector>

#include "preprocess/families/tile_grid.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// All grids of at most `max_tiles` tiles, as columns x rows, in the order that breaks ties.
std::vector<TileGrid> Llama4Grids(uint32_t max_tiles);

// The picture's size within `canvas`, in pixels: enlarged at most to one tile, unless `to_largest`.
ImageSize Llama4Size(ImageSize picture, ImageSize canvas, uint32_t tile, bool to_largest);

}  // namespace evenkeel::preprocess
