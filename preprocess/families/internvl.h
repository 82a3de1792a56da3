// InternVL's choice of tiles.
#pragma once

#include <cstdint>

#include "preprocess/families/tile_grid.h"

namespace evenkeel::preprocess {

// The grid of min_tiles to max_tiles tiles whose aspect ratio is nearest to the picture's. Among equally near
// ones, the last one by area whose tiles cover at most twice the picture's area.
TileGrid NearestTileGrid(ImageSize picture, ImageSize tile, uint32_t min_tiles, uint32_t max_tiles);

}  // namespace evenkeel::preprocess
