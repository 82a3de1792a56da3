// SigLIP 2 of any size (NaFlex): the size that a picture is resized to.
#pragma once

#include <cstdint>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The largest size of whole patches with about the picture's shape and at most `max_patches` patches, of which there is
// at least one. Sides of `picture` are positive.
ImageSize Siglip2Size(ImageSize picture, uint32_t patch, uint32_t max_patches);

}  // namespace evenkeel::preprocess
