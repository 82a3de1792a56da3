// The portable inner loops, and the choice of the fastest ones for this CPU.
#include "preprocess/resize/resize_kernels.h"

#include <algorithm>

#include "preprocess/resize/resize.h"
#include "preprocess/resize/resize_avx2.h"
#include "preprocess/resize/resize_avx512.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kGroup = 4;  // rows whose bytes share a lane: GroupOf(WeightForm::kBytes)

// Sums are unsigned, so that an overflow of an intermediate sum is defined; the final sum fits 32 signed
// bits. A negative sum (from the negative lobes of bicubic and Lanczos) becomes 0, one above 255 becomes 255.
uint8_t Clip(uint32_t sum, int shift) {
  return static_cast<uint8_t>(std::clamp(static_cast<int32_t>(sum) >> shift, 0, 255));
}

uint8_t* BytesOf(uint32_t* lane) { return reinterpret_cast<uint8_t*>(lane); }
const uint8_t* BytesOf(const uint32_t* lane) { return reinterpret_cast<const uint8_t*>(lane); }

// The horizontal filter as its definition, to which the vector paths are compared: for every output, row and
// channel (half + sum of weight * input) >> shift, in the fixed point of axis_weights.h. The integers are
// exact, so the order of additions does not matter and every path gives the same bytes. The last group may
// extend beyond the row, where weights are 0 and nothing is read. Byte r % 4 of a lane is row r, the order
// that the vertical filter takes.
void FilterBand(const PixelBand& band, const AxisWeights& axis, BandScratch&, size_t plane,
                uint32_t* const* out) {
  for (uint32_t x = 0; x < axis.outputs(); ++x) {
    const uint32_t first = kGroup * axis.first_group[x];
    const uint32_t taps = std::min(kGroup * axis.num_groups[x], axis.in - first);
    const int32_t* weights = axis.values_of(x);
    for (uint32_t r = 0; r < band.rows; ++r) {
      const size_t from = band.stride * r + size_t{band.step} * first;
      uint32_t sums[3] = {};
      for (uint32_t k = 0; k < taps; ++k) {
        const auto weight = static_cast<uint32_t>(weights[k]);
        for (int c = 0; c < 3; ++c) sums[c] += band.plane[c][from + band.step * k] * weight;
      }
      for (uint32_t c = 0; c < 3; ++c) {
        BytesOf(out[r / kGroup] + c * plane + x)[r % kGroup] = Clip(sums[c] + axis.half, axis.shift);
      }
    }
  }
}

// The vertical filter for output row `y`, the same sum over rows: a lane has four rows of one column. In
// blocks of columns whose sums stay in registers.
void SumGroups(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y, size_t count,
               uint8_t* out) {
  constexpr size_t kBlock = 16;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t block = std::min(kBlock, count - begin);
    uint32_t sums[kBlock];
    std::fill(sums, sums + kBlock, static_cast<uint32_t>(axis.half));
    const int32_t* weights = axis.values_of(y);
    for (uint32_t k = 0; k < axis.num_groups[y]; ++k, weights += kGroup) {
      const uint8_t* bytes = BytesOf(groups[k] + begin);
      for (size_t i = 0; i < block; ++i) {
        for (uint32_t r = 0; r < kGroup; ++r) {
          sums[i] += bytes[kGroup * i + r] * static_cast<uint32_t>(weights[r]);
        }
      }
    }
    for (size_t i = 0; i < block; ++i) out[begin + i] = Clip(sums[i], axis.shift);
  }
}

void SplitPlanes(const uint8_t* rgb, uint32_t width, uint8_t* planes) {
  for (uint32_t x = 0; x < width; ++x) {
    for (uint32_t c = 0; c < 3; ++c) planes[size_t{c} * width + x] = rgb[3 * x + c];
  }
}

void JoinPlanes(const uint8_t* const* planes, uint32_t width, uint8_t* rgb) {
  for (uint32_t x = 0; x < width; ++x) {
    for (uint32_t c = 0; c < 3; ++c) rgb[3 * x + c] = planes[c][x];
  }
}

}  // namespace

void GroupRowsOfBytes(const uint8_t* const* rows, size_t count, uint32_t* out) {
  for (size_t i = 0; i < count; ++i) {
    for (uint32_t r = 0; r < kGroup; ++r) BytesOf(out + i)[r] = rows[r][i];
  }
}

void SplitGroupOfBytes(const uint32_t* lanes, size_t count, uint8_t* const* rows) {
  for (uint32_t r = 0; r < kGroup; ++r) {
    for (size_t i = 0; i < count; ++i) rows[r][i] = BytesOf(lanes + i)[r];
  }
}

const ResizeKernels& ResizeKernelsOf(ResizePath path) {
  static constexpr ResizeKernels kPortable = {WeightForm::kBytes, 0,         FilterBand,  GroupRowsOfBytes,
                                              SplitGroupOfBytes,  SumGroups, SplitPlanes, JoinPlanes};
  static const ResizeKernels* const kAvx2 = Avx2Kernels() != nullptr ? Avx2Kernels() : &kPortable;
  static const ResizeKernels* const kBest = Avx512Kernels() != nullptr ? Avx512Kernels() : kAvx2;
  return path == ResizePath::kBest ? *kBest : path == ResizePath::kAvx2 ? *kAvx2 : kPortable;
}

}  // namespace evenkeel::preprocess
