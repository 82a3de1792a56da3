// LFM2-VL: the sizes that pictures are resized to, and their grid of tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "preprocess/families/tile_grid.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

struct Lfm2Rules {
  uint32_t patch = 16;       // side of a patch in pixels
  uint32_t downsample = 2;   // patches of a token's side
  uint32_t min_tokens = 64;  // of a picture that is not cut
  uint32_t max_tokens = 256;
  double tolerance = 2;  // times max_tokens: a larger picture is cut into tiles
  bool splits = true;    // pictures are cut at all
  uint32_t min_tiles = 2;
  uint32_t max_tiles = 10;
  uint32_t tile = 512;  // side in pixels
  bool thumbnail = true;

  uint32_t tile_side() const { return tile / patch; }  // in patches
  // Of a tile or a whole picture.
  uint32_t max_patches() const {
    return std::max(max_tokens * downsample * downsample, splits ? tile_side() * tile_side() : 0);
  }
  uint32_t factor() const { return patch * downsample; }  // a token's side in pixels
  double pixels_of(uint32_t tokens) const {
    return static_cast<double>(uint64_t{tokens} * factor() * factor());
  }
};

// The size of a whole picture: sides of whole tokens, within the bounds if its shape allows it. Sides of `picture` are
// positive.
ImageSize Lfm2Size(ImageSize picture, const Lfm2Rules& rules);

// The grid that a picture is cut into; {1, 1}: it is not cut.
TileGrid Lfm2Grid(ImageSize picture, const Lfm2Rules& rules);

}  // namespace evenkeel::preprocess
