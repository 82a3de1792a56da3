// The inner loops of resizing with AVX-512 and its VNNI.
#pragma once

#include "preprocess/resize/resize_kernels.h"

namespace evenkeel::preprocess {

// Null: this CPU lacks AVX-512 F, BW, VL or VNNI.
const ResizeKernels* Avx512Kernels();

}  // namespace evenkeel::preprocess
