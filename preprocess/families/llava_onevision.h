// LLaVA-OneVision: how many placeholders stand for a picture.
#pragma once

#include <cstdint>
#include <string>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// What its processor's own file has of placeholders.
struct OneVisionTokens {
  uint32_t whole = 0;       // of one tile
  uint32_t fewer = 0;       // taken from each picture's
  uint32_t most_tiles = 0;  // beyond so many the model makes its grid of patches smaller
  std::string image = "<image>";
};

// Placeholders of a grid of patches without padding, and one behind every row; `patches` to a side of a tile.
uint64_t OneVisionTiledTokens(ImageSize shown, uint32_t patches, uint32_t most_tiles);

}  // namespace evenkeel::preprocess
