// Llama 3.2 Vision: the grid of tiles that a picture is placed in, and its size there.
#pragma once

#include <cstdint>

#include "preprocess/families/tile_grid.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// Columns and rows of the grid that enlarges the picture least; if all reduce it, of the one that reduces it
// least. The smallest among equals.
TileGrid MllamaGrid(ImageSize picture, uint32_t max_tiles, uint32_t tile);

// The picture's size within `canvas`, in pixels; enlarged at most to one tile.
ImageSize MllamaSize(ImageSize picture, ImageSize canvas, uint32_t tile);

}  // namespace evenkeel::preprocess
