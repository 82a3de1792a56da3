// Pixtral: how large a picture becomes.
#pragma once

#include <cstdint>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The picture within `most`, then enlarged to whole steps. A side may be 0, which a caller refuses.
ImageSize PixtralSize(ImageSize picture, ImageSize most, uint32_t step);

}  // namespace evenkeel::preprocess
