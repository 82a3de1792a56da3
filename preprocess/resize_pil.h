// Pillow's resize by its old name; preprocess/resize.h has them all.
#pragma once

#include <span>

#include "preprocess/resize.h"

namespace evenkeel {

inline void ResizePil(std::span<const uint8_t> in, ImageSize in_size, ResizeFilter filter,
                      std::span<uint8_t> out, ImageSize out_size) {
  Resize(Resampler::kPil, filter, in, in_size, out, out_size);
}

}  // namespace evenkeel
