// The choice of a grid of tiles that Llama, Llama 3.2 Vision and Command A Vision share.
#include "preprocess/families/tile_grid.h"

#include <gtest/gtest.h>

namespace evenkeel::preprocess {
namespace {

TEST(TileGrid, GridsAreSortedByTilesAndNarrowOnesComeFirst) {
  const std::vector<TileGrid> sorted = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {3, 1}, {1, 4}, {2, 2}, {4, 1}};
  EXPECT_EQ(GridsByArea(1, 4), sorted);
  EXPECT_EQ(GridsByArea(4, 4), (std::vector<TileGrid>{{1, 4}, {2, 2}, {4, 1}}));
  EXPECT_EQ(GridsByArea(5, 4), std::vector<TileGrid>());
}

TEST(TileGrid, APictureIsEnlargedAsLittleAsPossible) {
  const std::vector<TileGrid> grids = GridsByArea(1, 12);
  EXPECT_EQ(LeastScaledGrid<double>({640, 480}, grids, 512), (TileGrid{2, 1})) << "480 rows become 512";
  EXPECT_EQ(LeastScaledGrid<double>({512, 512}, grids, 512), (TileGrid{1, 1})) << "unchanged";
  EXPECT_EQ(LeastScaledGrid<double>({513, 513}, grids, 512), (TileGrid{2, 2}));
  EXPECT_EQ(LeastScaledGrid<double>({100, 100}, grids, 512), (TileGrid{1, 1})) << "of equals the smallest";
}

TEST(TileGrid, APictureLargerThanEveryGridIsReducedAsLittleAsPossible) {
  const std::vector<TileGrid> grids = GridsByArea(1, 4);
  EXPECT_EQ(LeastScaledGrid<double>({5000, 5000}, grids, 512), (TileGrid{2, 2}));
  EXPECT_EQ(LeastScaledGrid<double>({9000, 600}, grids, 512), (TileGrid{4, 1}));
}

TEST(TileGrid, ToTheLargestIsEnlargedMost) {
  const std::vector<TileGrid> grids = GridsByArea(1, 16);
  EXPECT_EQ(LeastScaledGrid<float>({100, 100}, grids, 336, /*to_largest=*/true), (TileGrid{4, 4}));
  EXPECT_EQ(LeastScaledGrid<float>({100, 100}, grids, 336), (TileGrid{1, 1}));
}

}  // namespace
}  // namespace evenkeel::preprocess
