// LLaVA-OneVision: the number of placeholders of a picture.
#pragma once

#include <cstdint>
#include <string>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The placeholder settings of its processor's own file.
struct OneVisionTokens {
  uint32_t whole = 0;       // placeholders of one tile
  uint32_t fewer = 0;       // subtracted from each picture's
  uint32_t most_tiles = 0;  // for more tiles the model shrinks its grid of patches
  std::string image = "<image>";
  std::string video = "<video>";
};

// Placeholders of a grid of patches without padding, plus one after every row; `patches` per side of a tile.
uint64_t OneVisionTiledTokens(ImageSize shown, uint32_t patches, uint32_t most_tiles);

}  // namespace evenkeel::preprocess
