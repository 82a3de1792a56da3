// Ovis2's choice of tiles.
#pragma once

#include <cstdint>

#include "preprocess/families/tile_grid.h"

namespace evenkeel::preprocess {

// Of the grids of at most `max_tiles` square tiles of `side` pixels, the one with the fewest tiles whose tiles, each as
// large as the part of the picture that it shows or smaller, cover more than nine tenths of the picture; among equals the
// one that covers most. If none covers that much, the one that covers most.
TileGrid CoveringTileGrid(ImageSize picture, uint32_t side, uint32_t max_tiles);

}  // namespace evenkeel::preprocess
