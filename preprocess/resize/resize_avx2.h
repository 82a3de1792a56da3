// The inner loops of resizing with AVX2.
#pragma once

#include "preprocess/resize/resize_kernels.h"

namespace evenkeel::preprocess {

// Null: this CPU has no AVX2.
const ResizeKernels* Avx2Kernels();

}  // namespace evenkeel::preprocess
