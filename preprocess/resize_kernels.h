// The two inner loops of ResizePil, and the fastest ones that this CPU has. All give the same bytes: their
// sums are of integers, taken modulo 2^32, and the whole sum fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/resize_pil.h"

namespace evenkeel {

inline constexpr int kResizePrecision = 32 - 8 - 2;  // bits of a weight's fraction
inline constexpr int32_t kResizeHalf = 1 << (kResizePrecision - 1);

// Weights in halves of 16 bits, weight = high * 2^15 + low, each output's padded with zeroes to groups of
// four taps.
struct SplitWeights {
  uint32_t groups = 0;  // for each output
  std::vector<int16_t> high;
  std::vector<int16_t> low;
};
SplitWeights SplitOf(const AxisWeights& axis);

struct ResizeKernels {
  // One row of pixels: out[x] = sum of pixels from axis.first[x]. Nothing at or past `end` is read.
  void (*filter_row)(const uint8_t* row, const uint8_t* end, const AxisWeights& axis,
                     const SplitWeights& split, uint8_t* out);
  // One row of the result: out[i] = sum over k < count of rows[k * stride + i] * weights[k], i < width bytes.
  void (*sum_rows)(const uint8_t* rows, size_t stride, uint32_t count, const int32_t* weights, size_t width,
                   uint8_t* out);
};
ResizeKernels ResizeKernelsOf(ResizePath path);

}  // namespace evenkeel
