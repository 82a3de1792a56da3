// Janus, DeepSeek-VL: the size that a picture is resized to.
#pragma once

#include <cstdint>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The longer side becomes `side`, the other keeps the shape, but neither is below `shortest`. Sides of `picture` are
// positive.
ImageSize FittedSize(ImageSize picture, uint32_t side, uint32_t shortest);

}  // namespace evenkeel::preprocess
