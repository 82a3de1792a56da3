// Pixtral: the size of a resized picture.
#pragma once

#include <cstdint>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The picture reduced to fit into `most`, then rounded up to multiples of `step`. A side may be 0, which the
// caller must refuse.
ImageSize PixtralSize(ImageSize picture, ImageSize most, uint32_t step);

}  // namespace evenkeel::preprocess
