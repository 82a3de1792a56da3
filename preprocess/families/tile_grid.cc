// Lists the grids that a picture may be cut into.
#include "preprocess/families/tile_grid.h"

namespace evenkeel::preprocess {

std::vector<TileGrid> GridsByArea(uint32_t min_tiles, uint32_t max_tiles) {
  std::vector<TileGrid> out;
  for (uint32_t columns = 1; columns <= max_tiles; ++columns) {
    for (uint32_t rows = 1; columns * rows <= max_tiles; ++rows) {
      if (columns * rows >= min_tiles) out.push_back({columns, rows});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const TileGrid& a, const TileGrid& b) { return a.tiles() < b.tiles(); });
  return out;
}

}  // namespace evenkeel::preprocess
