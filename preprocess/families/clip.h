// CLIP and SigLIP style image processors: one picture of a fixed size.
#pragma once

#include <cstdint>

#include "preprocess/families/pixel_settings.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The size whose shorter side is `edge`, as transformers computes it: int(edge * long / short). A longer side
// that no uint32_t holds, which a picture within the limits never has, is the largest that one holds.
ImageSize ShortestEdgeSize(ImageSize picture, uint32_t edge);
// The size that a picture becomes by one of the sets that CheckSideSizes() knows, as transformers computes it
// with its divisions of doubles. A side may be 0, which a caller refuses; the largest is as above.
ImageSize ResizedBy(const SideSizes& size, ImageSize picture);

// Where a centre crop of `crop` begins on an axis of `side`. Negative: black is added before the picture; the
// two paths of transformers differ by one where that is odd.
int32_t CropBegin(uint32_t side, uint32_t crop, Resampler resampler);

}  // namespace evenkeel::preprocess
