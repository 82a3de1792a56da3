// The inner loops of resizing, and the fastest ones that this CPU has. All give the same bytes: their sums
// are of integers, taken modulo 2^32, and the whole sum fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/axis_weights.h"

namespace evenkeel {

// 16-bit values that start at a cache line, reused and grown without keeping what they held.
class AlignedValues {
 public:
  int16_t* Get(size_t count) {
    if (values_.size() < count + kLine) values_.resize(count + kLine);
    return values_.data() + (-reinterpret_cast<uintptr_t>(values_.data()) % 64) / sizeof(int16_t);
  }

 private:
  static constexpr size_t kLine = 64 / sizeof(int16_t);
  std::vector<int16_t> values_;
};

// Memory of filter_band, reused from band to band.
struct BandScratch {
  AlignedValues pairs;
};

struct ResizeKernels {
  // The horizontal filter for up to kBandRows rows of interleaved RGB, `stride` bytes apart, axis.in pixels
  // wide. Row r of the result, three planes of axis.outputs() bytes, goes to out + r * out_stride.
  void (*filter_band)(const uint8_t* rgb, size_t stride, uint32_t rows, const AxisWeights& axis,
                      BandScratch& scratch, uint8_t* out, size_t out_stride);
  // out[2 * i] = even[i], out[2 * i + 1] = odd[i], i < count.
  void (*pair_rows)(const uint8_t* even, const uint8_t* odd, size_t count, int16_t* out);
  // The vertical filter for one row of `count` bytes: output `y` of the axis. pairs[k] holds the paired rows
  // of pair first_pair[y] + k.
  void (*sum_pairs)(const int16_t* const* pairs, const AxisWeights& axis, uint32_t y, size_t count,
                    uint8_t* out);
  // Interleaved RGB to three planes of `width` bytes, one after another.
  void (*split_planes)(const uint8_t* rgb, uint32_t width, uint8_t* planes);
};

// kAvx2 is kPortable where the CPU lacks it.
enum class ResizePath : uint8_t { kBest, kAvx2, kPortable };
const ResizeKernels& ResizeKernelsOf(ResizePath path);

}  // namespace evenkeel
