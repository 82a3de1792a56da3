// The horizontal filter near the size that there is, with AVX2: bytes of a row are put in the order of the
// outputs where they lie, so that rows need not be turned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preprocess/resize/axis_weights.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// ResizeKernels::filter_band of planes, for an axis that has windows.
void FilterWindows(const PixelBand& planes, const AxisWeights& axis, size_t plane, uint32_t* const* out);

}  // namespace evenkeel::preprocess
