// Idefics3 and SmolVLM: the successive sizes that a picture is resized to.
#pragma once

#include <cstdint>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The picture's shape with a longest side of `longest` pixels, at most 4096; the other side is made even.
ImageSize Idefics3Size(ImageSize picture, uint32_t longest);

// The size in whole tiles of `tile` pixels that the resized picture is stretched to.
ImageSize Idefics3Canvas(ImageSize resized, uint32_t tile);

}  // namespace evenkeel::preprocess
