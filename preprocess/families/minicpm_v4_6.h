// MiniCPM-V 4.6: the grid of slices that a picture or frame is cut into, the sizes that it is resized to, and its text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "preprocess/families/config_file.h"
#include "preprocess/families/family.h"
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

// What a picture or a frame becomes.
struct MiniCpmShape {
  ImageSize whole;
  TileGrid grid;     // {1, 1}: not cut
  ImageSize canvas;  // of the slices together

  bool is_cut() const { return grid.tiles() > 1; }
  ImageSize slice() const { return {canvas.width / grid.columns, canvas.height / grid.rows}; }
};
MiniCpmShape MiniCpmShapeOf(ImageSize picture, const MiniCpmRules& rules);
// Of the whole picture and of all slices.
uint32_t MiniCpmTokens(const MiniCpmShape& shape, const MiniCpmRules& rules);

// The style of a medium by its token, whose pieces the next two write.
MediumStyle MiniCpmStyle(Medium medium, std::string_view token);
// The number of an item among those of its medium.
void AddMiniCpmNumber(std::vector<PlaceholderRun>& runs);
// A whole picture or frame, then its slices in rows, between which there are line breaks.
void AddMiniCpmRuns(const MiniCpmShape& shape, const MiniCpmRules& rules, std::vector<PlaceholderRun>& runs);

// The keys that image and video processors share. The caller finishes the file.
MiniCpmRules ReadMiniCpmRules(ConfigFile& config);

}  // namespace evenkeel::preprocess
