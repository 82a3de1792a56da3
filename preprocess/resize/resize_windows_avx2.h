// The horizontal filter of AVX2 at nearly the original size: bytes of a row are shuffled into the order of
// the outputs, so that rows need not be transposed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preprocess/resize/axis_weights.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// ResizeKernels::filter_band for planes and an axis with windows.
void FilterWindows(const PixelBand& planes, const AxisWeights& axis, size_t plane, uint32_t* const* out);

}  // namespace evenkeel::preprocess
