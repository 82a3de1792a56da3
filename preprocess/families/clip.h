// CLIP and SigLIP style image processors: one picture of a fixed size.
#pragma once

#include <cstdint>

#include "preprocess/families/pixel_settings.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The size whose shorter side is `edge`, as transformers computes it: int(edge * long / short). A longer side
// that does not fit into uint32_t, which pictures within the limits never have, is UINT32_MAX.
ImageSize ShortestEdgeSize(ImageSize picture, uint32_t edge);
// The size of a resized picture, for one of the sets that CheckSideSizes() accepts, as transformers computes
// it with its divisions of doubles. A side may be 0, which the caller must refuse; the maximum is as above.
ImageSize ResizedBy(const SideSizes& size, ImageSize picture);

// Where a centre crop of `crop` pixels begins on an axis of `side` pixels. Negative: black is added before
// the picture. If the difference is odd, the two paths of transformers differ by one.
int32_t CropBegin(uint32_t side, uint32_t crop, Resampler resampler);

}  // namespace evenkeel::preprocess
