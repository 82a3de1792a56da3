// The inner loops of resizing with AVX-512 and its VNNI.
#pragma once

#include "preprocess/resize/resize_kernels.h"

namespace evenkeel::preprocess {

// Null where this CPU lacks one of AVX-512 F, BW, VL and VNNI.
const ResizeKernels* Avx512Kernels();

}  // namespace evenkeel::preprocess
