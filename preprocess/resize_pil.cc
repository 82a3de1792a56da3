#include "preprocess/resize_pil.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "preprocess/resize_kernels.h"

namespace evenkeel {
namespace {

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
  double scaled = weight * (1 << kResizePrecision);
  return static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
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
  const ResizeKernels kernels = ResizeKernelsOf(path);
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
    const SplitWeights split = SplitOf(axis);
    const uint8_t* end = in.data() + in.size();
    for (uint32_t y = 0; y < in_size.height; ++y) {
      kernels.filter_row(in.data() + size_t{3} * in_size.width * y, end, axis, split,
                         target + out_stride * y);
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
