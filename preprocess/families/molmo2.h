// Molmo 2: the grid of overlapping crops that a picture is cut into.
#pragma once

#include <cstdint>

#include "preprocess/families/tile_grid.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

struct Molmo2Rules {
  uint32_t side = 378;  // of a crop in pixels, whole patches
  uint32_t patch = 14;
  uint32_t max_crops = 8;
  uint32_t before = 4, after = 4;  // patches of a crop's margins, which its neighbours have too
  uint32_t pool_height = 2, pool_width = 2;

  uint32_t patches() const { return side / patch; }  // along a side of a crop
  uint32_t margin() const { return before + after; }
  uint32_t window() const { return patches() - margin(); }
};

// The grid of at most max_crops crops that enlarges the picture without its margins least, or reduces it least where
// all reduce it, whatever its shape. Sides of `picture` are positive.
TileGrid Molmo2Grid(ImageSize picture, const Molmo2Rules& rules);

// The size that a picture is resized to before it is cut into the grid's crops.
ImageSize Molmo2Canvas(TileGrid grid, const Molmo2Rules& rules);

}  // namespace evenkeel::preprocess
