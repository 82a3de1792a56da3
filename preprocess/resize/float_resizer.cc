// Weights and sums as in aten/src/ATen/native/cpu/UpSampleKernel.cpp (_compute_weights_aa, interpolate_aa_single_dim):
// first across, then down, in float32.
//
// The order of roundings is the compiler's of torch's wheels, found by comparison and the same for AVX2 and AVX-512: the
// first product and those of every full group of four after it are rounded before they are added; the up to three that
// remain are added by fused multiply-adds. std::fma is exact on every CPU, so the result does not depend on ours.
#include "preprocess/resize/float_resizer.h"

#include <algorithm>
#include <cmath>

namespace evenkeel::preprocess {
namespace {

constexpr size_t kGroup = 4;

// Whether the product of this weight, of `count`, is rounded before it is added.
bool IsRounded(size_t weight, size_t count) { return weight == 0 || weight <= (count - 1) / kGroup * kGroup; }

}  // namespace

// For output i: its centre in input pixels, the inputs whose centres are within `support` of it (the
// triangle's half width, 1, widened by the reduction), and their weights 1 - |distance| / support, normalised
// to a sum of 1, because the borders cut the triangle off.
void FloatResizer::MakeWindows(uint32_t in, uint32_t out, std::vector<Window>& windows) {
  windows.resize(out);
  // float32 where the original's tensors are, double where its literals make it so.
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  const float support = scale >= 1 ? scale : 1;
  const float to_filter = scale >= 1 ? static_cast<float>(1.0 / scale) : 1;
  const int64_t most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  for (uint32_t i = 0; i < out; ++i) {
    const float center = static_cast<float>(scale * (i + 0.5));
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
    const int64_t count = std::clamp<int64_t>(end - first, 0, most);
    Window& window = windows[i];
    window.first = static_cast<uint32_t>(first);
    window.weights.clear();
    float total = 0;
    for (int64_t j = 0; j < count; ++j) {
      const float x =
          std::abs(static_cast<float>((static_cast<float>(j + first) - center + 0.5) * to_filter));
      window.weights.push_back(x < 1 ? 1 - x : 0);
      total += window.weights.back();
    }
    if (total == 0) continue;
    for (float& weight : window.weights) weight /= total;
  }
}

void FloatResizer::Start(const Sizes& sizes, const std::array<float, 256>& table, std::span<float> out) {
  sizes_ = sizes;
  table_ = &table;
  out_ = out;
  MakeWindows(sizes.in.width, sizes.out.width, columns_);
  MakeWindows(sizes.in.height, sizes.out.height, rows_);
  row_.resize(sizes.in.width);
  resized_.resize(sizes.out.width);
  taken_ = 0;
}

// Filters a row across as soon as it comes, channel by channel: bytes to floats by the table, then the sums
// of products in torch's order (see the top).
void FloatResizer::Take(const PlanarRow& row) {
  for (size_t c = 0; c < 3; ++c) {
    for (uint32_t x = 0; x < sizes_.in.width; ++x) row_[x] = (*table_)[row.plane[c][x]];
    for (uint32_t x = 0; x < sizes_.out.width; ++x) {
      const std::vector<float>& weights = columns_[x].weights;
      const float* const from = row_.data() + columns_[x].first;
      float sum = from[0] * weights[0];
      size_t j = 1;
      for (; j < weights.size() && IsRounded(j, weights.size()); ++j) sum += from[j] * weights[j];
      for (; j < weights.size(); ++j) sum = std::fma(from[j], weights[j], sum);
      resized_[x] = sum;
    }
    AddRow(resized_.data(), c);
  }
  ++taken_;
}

// Adds the row to every row of the result that it is a part of. Rows come from top to bottom, so the sums have the
// order of the weights.
void FloatResizer::AddRow(const float* row, size_t channel) {
  const uint32_t width = sizes_.out.width;
  for (uint32_t y = 0; y < sizes_.out.height; ++y) {
    const Window& window = rows_[y];
    if (window.first > taken_) break;  // and so do those after it
    const size_t weight = taken_ - window.first, count = window.weights.size();
    if (weight >= count) continue;
    float* const sum = out_.data() + (channel * sizes_.out.height + y) * width;
    const float by = window.weights[weight];
    if (weight == 0) {
      for (uint32_t x = 0; x < width; ++x) sum[x] = row[x] * by;
    } else if (IsRounded(weight, count)) {
      for (uint32_t x = 0; x < width; ++x) sum[x] += row[x] * by;
    } else {
      for (uint32_t x = 0; x < width; ++x) sum[x] = std::fma(row[x], by, sum[x]);
    }
  }
}

}  // namespace evenkeel::preprocess
