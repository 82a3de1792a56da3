// Grids of tiles that a picture is cut into, and the rule by which several models choose one: the picture is
// enlarged as little as possible, or, if it is larger than every grid, reduced as little as possible.
//
// Example:
//     const std::vector<TileGrid> grids = GridsByArea(/*min_tiles=*/1, /*max_tiles=*/12);
//     // Two columns and one row: the 480 rows of the picture are enlarged to 512.
//     const TileGrid grid = LeastScaledGrid<double>({640, 480}, grids, /*tile=*/512);
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

struct TileGrid {
  uint32_t columns = 0;
  uint32_t rows = 0;

  uint32_t tiles() const { return columns * rows; }
  // The size in pixels of the grid's tiles together.
  ImageSize Canvas(ImageSize tile) const { return {columns * tile.width, rows * tile.height}; }
  friend bool operator==(const TileGrid&, const TileGrid&) = default;
};

// All grids of min_tiles to max_tiles tiles by ascending number of tiles; among equals narrower ones first.
std::vector<TileGrid> GridsByArea(uint32_t min_tiles, uint32_t max_tiles);

// The grid of square tiles of `tile` pixels that the picture, keeping its shape, is enlarged least to fill,
// or most if `to_largest`; if it exceeds all of them, the grid that reduces it least. Of equal ones, the
// first of those with the fewest tiles. `Real` is the type in which the original computes its scale factors:
// the bits of a factor decide which grids are equal.
template <typename Real>
TileGrid LeastScaledGrid(ImageSize picture, std::span<const TileGrid> grids, uint32_t tile,
                         bool to_largest = false) {
  const auto scale_of = [&](TileGrid grid) {
    return std::min(static_cast<Real>(grid.columns * tile) / static_cast<Real>(picture.width),
                    static_cast<Real>(grid.rows * tile) / static_cast<Real>(picture.height));
  };
  Real most_reduced = 0, least_enlarged = std::numeric_limits<Real>::infinity(), most_enlarged = 0;
  for (const TileGrid& grid : grids) {
    const Real scale = scale_of(grid);
    if (scale >= 1) {
      least_enlarged = std::min(least_enlarged, scale);
      most_enlarged = std::max(most_enlarged, scale);
    } else {
      most_reduced = std::max(most_reduced, scale);
    }
  }
  const Real chosen = most_enlarged == 0 ? most_reduced : to_largest ? most_enlarged : least_enlarged;
  TileGrid best;
  for (const TileGrid& grid : grids) {
    if (scale_of(grid) != chosen) continue;
    if (best.tiles() == 0 || grid.tiles() < best.tiles()) best = grid;
  }
  return best;
}

}  // namespace evenkeel::preprocess
