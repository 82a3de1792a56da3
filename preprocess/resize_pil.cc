#include "preprocess/resize_pil.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace evenkeel {
namespace {

constexpr int kPrecision = 32 - 8 - 2;
constexpr int32_t kHalf = 1 << (kPrecision - 1);

double Bicubic(double x) {
  constexpr double a = -0.5;
  if (x < 0.0) x = -x;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double Bilinear(double x) {
  if (x < 0.0) x = -x;
  return x < 1.0 ? 1.0 - x : 0.0;
}

int32_t ToFixed(double weight) {
  double scaled = weight * (1 << kPrecision);
  return static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

#define EVENKEEL_INLINE __attribute__((always_inline)) inline

EVENKEEL_INLINE uint8_t Clip(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255));
}

typedef uint8_t Bytes8 __attribute__((vector_size(8)));
typedef int32_t Ints8 __attribute__((vector_size(32)));

// Columns: out[i] = sum over k of rows[k * stride + i] * weights[k].
EVENKEEL_INLINE void SumRows(const uint8_t* rows, size_t stride, uint32_t count, const int32_t* weights,
                             size_t width, uint8_t* out) {
  constexpr size_t kVectors = 4;
  size_t i = 0;
  for (; i + 8 * kVectors <= width; i += 8 * kVectors) {
    Ints8 sums[kVectors];
    for (Ints8& sum : sums) sum = Ints8{} + kHalf;
    for (uint32_t k = 0; k < count; ++k) {
      const uint8_t* row = rows + k * stride + i;
      for (size_t v = 0; v < kVectors; ++v) {
        Bytes8 bytes;
        std::memcpy(&bytes, row + 8 * v, sizeof(bytes));
        sums[v] += __builtin_convertvector(bytes, Ints8) * weights[k];
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      Ints8 sum = sums[v] >> kPrecision;
      sum = sum < 0 ? Ints8{} : sum;
      sum = sum > 255 ? Ints8{} + 255 : sum;
      Bytes8 bytes = __builtin_convertvector(sum, Bytes8);
      std::memcpy(out + i + 8 * v, &bytes, sizeof(bytes));
    }
  }
  for (; i < width; ++i) {
    int32_t sum = kHalf;
    for (uint32_t k = 0; k < count; ++k) sum += rows[k * stride + i] * weights[k];
    out[i] = Clip(sum);
  }
}

EVENKEEL_INLINE uint32_t Load4(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// One pixel of a row: two taps at a time, in lanes r g b - r g b -. Reads one byte past the last pixel.
EVENKEEL_INLINE void SumPixels(const uint8_t* pixels, uint32_t count, const int32_t* weights, uint8_t* out) {
  Ints8 sums = {kHalf, kHalf, kHalf, 0, 0, 0, 0, 0};
  uint32_t k = 0;
  for (; k + 2 <= count; k += 2) {
    uint64_t pair = Load4(pixels + 3 * k) | uint64_t{Load4(pixels + 3 * k + 3)} << 32;
    Bytes8 bytes;
    std::memcpy(&bytes, &pair, sizeof(bytes));
    int32_t a = weights[k], b = weights[k + 1];
    sums += __builtin_convertvector(bytes, Ints8) * Ints8{a, a, a, a, b, b, b, b};
  }
  if (k < count) {
    uint64_t single = Load4(pixels + 3 * k);
    Bytes8 bytes;
    std::memcpy(&bytes, &single, sizeof(bytes));
    sums += __builtin_convertvector(bytes, Ints8) * weights[k];
  }
  for (int c = 0; c < 3; ++c) out[c] = Clip(sums[c] + sums[c + 4]);
}

EVENKEEL_INLINE void SumPixelsToTheEnd(const uint8_t* pixels, uint32_t count, const int32_t* weights,
                                       uint8_t* out) {
  for (int c = 0; c < 3; ++c) {
    int32_t sum = kHalf;
    for (uint32_t k = 0; k < count; ++k) sum += pixels[3 * k + c] * weights[k];
    out[c] = Clip(sum);
  }
}

// `last` is the last row of the image: nothing may be read past its end.
EVENKEEL_INLINE void FilterRow(const uint8_t* row, uint32_t width, bool last, const AxisWeights& axis,
                               uint8_t* out) {
  for (size_t x = 0; x < axis.first.size(); ++x) {
    const int32_t* weights = &axis.weights[x * axis.taps];
    const uint8_t* pixels = row + size_t{3} * axis.first[x];
    if (last && axis.first[x] + axis.count[x] == width) {
      SumPixelsToTheEnd(pixels, axis.count[x], weights, out + 3 * x);
    } else {
      SumPixels(pixels, axis.count[x], weights, out + 3 * x);
    }
  }
}

struct Kernels {
  void (*filter_row)(const uint8_t*, uint32_t, bool, const AxisWeights&, uint8_t*);
  void (*sum_rows)(const uint8_t*, size_t, uint32_t, const int32_t*, size_t, uint8_t*);
};

void FilterRowPortable(const uint8_t* row, uint32_t width, bool last, const AxisWeights& axis, uint8_t* out) {
  FilterRow(row, width, last, axis, out);
}
void SumRowsPortable(const uint8_t* rows, size_t stride, uint32_t count, const int32_t* weights, size_t width,
                     uint8_t* out) {
  SumRows(rows, stride, count, weights, width, out);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) void FilterRowAvx2(const uint8_t* row, uint32_t width, bool last,
                                                   const AxisWeights& axis, uint8_t* out) {
  FilterRow(row, width, last, axis, out);
}
__attribute__((target("avx2"))) void SumRowsAvx2(const uint8_t* rows, size_t stride, uint32_t count,
                                                 const int32_t* weights, size_t width, uint8_t* out) {
  SumRows(rows, stride, count, weights, width, out);
}
#endif

Kernels KernelsOf(ResizePath path) {
#ifdef __x86_64__
  if (path == ResizePath::kBest && __builtin_cpu_supports("avx2")) return {FilterRowAvx2, SumRowsAvx2};
#endif
  (void)path;
  return {FilterRowPortable, SumRowsPortable};
}

}  // namespace

AxisWeights WeightsOf(uint32_t in, uint32_t out, ResizeFilter filter) {
  bool cubic = filter == ResizeFilter::kBicubic;
  double scale = static_cast<double>(in) / out;
  double stretch = std::max(scale, 1.0);
  double support = (cubic ? 2.0 : 1.0) * stretch;
  AxisWeights axis;
  axis.taps = static_cast<uint32_t>(std::ceil(support)) * 2 + 1;
  axis.first.resize(out);
  axis.count.resize(out);
  axis.weights.resize(size_t{out} * axis.taps);
  std::vector<double> exact(axis.taps);
  for (uint32_t i = 0; i < out; ++i) {
    double center = (i + 0.5) * scale;
    double inverse = 1.0 / stretch;
    int begin = std::max(0, static_cast<int>(center - support + 0.5));
    int end = std::min(static_cast<int>(in), static_cast<int>(center + support + 0.5));
    double total = 0;
    for (int k = 0; k < end - begin; ++k) {
      double x = (k + begin - center + 0.5) * inverse;
      exact[k] = cubic ? Bicubic(x) : Bilinear(x);
      total += exact[k];
    }
    axis.first[i] = begin;
    axis.count[i] = end - begin;
    for (int k = 0; k < end - begin; ++k) {
      axis.weights[size_t{i} * axis.taps + k] = ToFixed(total != 0.0 ? exact[k] / total : exact[k]);
    }
  }
  return axis;
}

void ResizePilOn(ResizePath path, std::span<const uint8_t> in, ImageSize in_size, ResizeFilter filter,
                 std::span<uint8_t> out, ImageSize out_size) {
  const Kernels kernels = KernelsOf(path);
  const size_t out_stride = size_t{3} * out_size.width;
  const bool rows = in_size.width != out_size.width;
  const bool columns = in_size.height != out_size.height;
  if (!rows && !columns) {
    std::memcpy(out.data(), in.data(), out.size());
    return;
  }
  const uint8_t* source = in.data();
  std::unique_ptr<uint8_t[]> between;
  if (rows) {
    AxisWeights axis = WeightsOf(in_size.width, out_size.width, filter);
    uint8_t* target = out.data();
    if (columns) {
      between = std::make_unique_for_overwrite<uint8_t[]>(out_stride * in_size.height);
      target = between.get();
    }
    for (uint32_t y = 0; y < in_size.height; ++y) {
      kernels.filter_row(in.data() + size_t{3} * in_size.width * y, in_size.width, y + 1 == in_size.height,
                         axis, target + out_stride * y);
    }
    source = target;
  }
  if (!columns) return;
  AxisWeights axis = WeightsOf(in_size.height, out_size.height, filter);
  for (uint32_t y = 0; y < out_size.height; ++y) {
    kernels.sum_rows(source + out_stride * axis.first[y], out_stride, axis.count[y],
                     &axis.weights[size_t{y} * axis.taps], out_stride, out.data() + out_stride * y);
  }
}

void ResizePil(std::span<const uint8_t> in, ImageSize in_size, ResizeFilter filter, std::span<uint8_t> out,
               ImageSize out_size) {
  ResizePilOn(ResizePath::kBest, in, in_size, filter, out, out_size);
}

}  // namespace evenkeel
