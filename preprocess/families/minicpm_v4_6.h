// MiniCPM-V 4.6: the grid of slices that a picture is cut into, and the sizes that it is resized to.
#pragma once

#include <cstdint>

#include "preprocess/families/tile_grid.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

struct MiniCpmRules {
  uint32_t side = 448;  // of a square with as many pixels as a slice is meant to have
  uint32_t max_slices = 9;
  uint32_t patch = 14;
  uint32_t merge = 4;  // patches of a token along a side
  bool slices = true;

  uint32_t step() const { return patch * merge; }
};

// The grid whose shape is nearest to the picture's; {1, 1}: it is not cut. Sides of `picture` are positive.
TileGrid MiniCpmGrid(ImageSize picture, const MiniCpmRules& rules);
// The size of the whole picture, in whole tokens. `enlarged`: also a small one is resized to a slice's pixels.
ImageSize MiniCpmSize(ImageSize picture, const MiniCpmRules& rules, bool enlarged);
// The size that a picture is resized to before it is cut into the grid's slices.
ImageSize MiniCpmCanvas(ImageSize picture, TileGrid grid, const MiniCpmRules& rules);

}  // namespace evenkeel::preprocess
