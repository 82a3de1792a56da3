// PaddleOCR-VL: the size that a picture is resized to.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// As SmartResize, after a side below `factor` was raised to it. InvalidArgument as there.
absl::StatusOr<ImageSize> PaddleOcrSize(ImageSize picture, uint32_t factor, uint64_t min_pixels,
                                        uint64_t max_pixels);

}  // namespace evenkeel::preprocess
