// Llama 3.2 Vision: the grid of tiles that a picture is put in, and its size there.
#pragma once

#include <cstdint>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// Columns and rows of the grid that enlarges the picture least; where all reduce it, of the one that reduces
// it least. Of equals the smallest.
ImageSize MllamaGrid(ImageSize picture, uint32_t max_tiles, uint32_t tile);

// The picture's size within `canvas`, in pixels; enlarged to a tile at most.
ImageSize MllamaSize(ImageSize picture, ImageSize canvas, uint32_t tile);

}  // namespace evenkeel::preprocess
