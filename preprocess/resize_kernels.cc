#include "preprocess/resize_kernels.h"

#include <algorithm>

#include "preprocess/resize_avx2.h"

namespace evenkeel {
namespace {

uint8_t Clip(uint32_t sum, int shift) {
  return static_cast<uint8_t>(std::clamp(static_cast<int32_t>(sum) >> shift, 0, 255));
}

void FilterBand(const uint8_t* rgb, size_t stride, uint32_t rows, const AxisWeights& axis, BandScratch&,
                uint8_t* out, size_t out_stride) {
  const uint32_t outputs = axis.outputs();
  for (uint32_t x = 0; x < outputs; ++x) {
    const uint32_t first = 2 * axis.first_pair[x];
    const uint32_t taps = std::min(2 * axis.num_pairs[x], axis.in - first);
    for (uint32_t r = 0; r < rows; ++r) {
      const uint8_t* pixel = rgb + stride * r + size_t{3} * first;
      uint32_t sums[3] = {};
      for (uint32_t k = 0; k < taps; ++k, pixel += 3) {
        const auto weight = static_cast<uint32_t>(axis.weight(x, k));
        for (int c = 0; c < 3; ++c) sums[c] += pixel[c] * weight;
      }
      for (uint32_t c = 0; c < 3; ++c) {
        out[out_stride * r + c * outputs + x] = Clip(sums[c] + axis.half, axis.shift);
      }
    }
  }
}

void PairRows(const uint8_t* even, const uint8_t* odd, size_t count, int16_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[2 * i] = even[i];
    out[2 * i + 1] = odd[i];
  }
}

// Columns in blocks that stay in registers.
void SumPairs(const int16_t* const* pairs, const AxisWeights& axis, uint32_t y, size_t count, uint8_t* out) {
  constexpr size_t kBlock = 16;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t block = std::min(kBlock, count - begin);
    uint32_t sums[kBlock];
    std::fill(sums, sums + kBlock, static_cast<uint32_t>(axis.half));
    for (uint32_t k = 0; k < axis.num_pairs[y]; ++k) {
      const int16_t* pair = pairs[k] + 2 * begin;
      const auto even = static_cast<uint32_t>(axis.weight(y, 2 * k));
      const auto odd = static_cast<uint32_t>(axis.weight(y, 2 * k + 1));
      for (size_t i = 0; i < block; ++i) sums[i] += pair[2 * i] * even + pair[2 * i + 1] * odd;
    }
    for (size_t i = 0; i < block; ++i) out[begin + i] = Clip(sums[i], axis.shift);
  }
}

void SplitPlanes(const uint8_t* rgb, uint32_t width, uint8_t* planes) {
  for (uint32_t x = 0; x < width; ++x) {
    for (uint32_t c = 0; c < 3; ++c) planes[size_t{c} * width + x] = rgb[3 * x + c];
  }
}

}  // namespace

const ResizeKernels& ResizeKernelsOf(ResizePath path) {
  static constexpr ResizeKernels kPortable = {FilterBand, PairRows, SumPairs, SplitPlanes};
  static const ResizeKernels* const kAvx2 = Avx2Kernels() != nullptr ? Avx2Kernels() : &kPortable;
  static const ResizeKernels* const kBest = VnniKernels() != nullptr ? VnniKernels() : kAvx2;
  return path == ResizePath::kBest ? *kBest : path == ResizePath::kAvx2 ? *kAvx2 : kPortable;
}

}  // namespace evenkeel
