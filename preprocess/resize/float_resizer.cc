// Weights and sums as in aten/src/ATen/native/cpu/UpSampleKernel.cpp (_compute_weights_aa, interpolate_aa_single_dim):
// first across, then down, in float32.
//
// The order of roundings is the compiler's of torch's wheels, found by comparison and the same for AVX2 and AVX-512: the
// first product and those of every full group of four after it are rounded before they are added; the up to three that
// remain are added by fused multiply-adds. std::fma is exact on every CPU, so the result does not depend on ours; the
// loops are compiled a second time for CPUs that have it as an instruction.
#include "preprocess/resize/float_resizer.h"

#include <algorithm>
#include <cmath>

#include "core/cpu.h"

namespace evenkeel::preprocess {
namespace {

constexpr size_t kGroup = 4;

// How many of `count` weights, from the second on, have products that are rounded before they are added.
size_t NumRounded(size_t count) { return (count - 1) / kGroup * kGroup; }

// The triangle and Keys' cubic with a = -1/2, of |x|; each inner operation of the cubic is one fused multiply-add, as
// in torch's wheels.
float WeightAt(ResizeFilter filter, float x) {
  if (filter == ResizeFilter::kBilinear) return x < 1 ? 1 - x : 0;
  constexpr float kA = -0.5f;
  if (x < 1) return std::fma(std::fma(kA + 2, x, -(kA + 3)) * x, x, 1.0f);
  if (x < 2) return std::fma(std::fma(std::fma(kA, x, -5 * kA), x, 8 * kA), x, -4 * kA);
  return 0;
}

constexpr size_t kLanes = 24;  // FloatResizer's

// Sums `count` inputs of kLanes lanes each by their weights into `sums`.
inline __attribute__((always_inline)) void SumLanes(const float* from, const float* weights, size_t count,
                                                    float* sums) {
  for (size_t i = 0; i < kLanes; ++i) sums[i] = from[i] * weights[0];
  size_t j = 1;
  for (const size_t rounded = NumRounded(count); j <= rounded; ++j) {
    for (size_t i = 0; i < kLanes; ++i) sums[i] += from[j * kLanes + i] * weights[j];
  }
  for (; j < count; ++j) {
    for (size_t i = 0; i < kLanes; ++i) sums[i] = std::fma(from[j * kLanes + i], weights[j], sums[i]);
  }
}

// sum[i] = row[i] * by + sum[i], rounded once.
inline __attribute__((always_inline)) void AddFusedProducts(const float* row, float by, size_t count,
                                                            float* sum) {
  for (size_t i = 0; i < count; ++i) sum[i] = std::fma(row[i], by, sum[i]);
}

// The loops for a CPU.
struct Loops {
  void (*sum_lanes)(const float* from, const float* weights, size_t count, float* sums);
  void (*add_fused)(const float* row, float by, size_t count, float* sum);
};

void SumLanesPortably(const float* from, const float* weights, size_t count, float* sums) {
  SumLanes(from, weights, count, sums);
}
void AddFusedPortably(const float* row, float by, size_t count, float* sum) {
  AddFusedProducts(row, by, count, sum);
}

#ifdef __x86_64__
#define EVENKEEL_FMA __attribute__((target("avx2,fma")))
EVENKEEL_FMA void SumLanesByFma(const float* from, const float* weights, size_t count, float* sums) {
  SumLanes(from, weights, count, sums);
}
EVENKEEL_FMA void AddFusedByFma(const float* row, float by, size_t count, float* sum) {
  AddFusedProducts(row, by, count, sum);
}
#endif

const Loops& FastestLoops() {
  static constexpr Loops kPortable = {SumLanesPortably, AddFusedPortably};
#ifdef __x86_64__
  static constexpr Loops kFma = {SumLanesByFma, AddFusedByFma};
  static const bool kHasFma = MayUseAvx2() && __builtin_cpu_supports("fma");
  if (kHasFma) return kFma;
#endif
  return kPortable;
}

}  // namespace

// For output i: its centre in input pixels, the inputs whose centres are within `support` of it (the filter's half
// width, 1 or 2, widened by the reduction), and their weights at |distance| / reduction, normalised to a sum of 1,
// because the borders cut the filter off.
void FloatResizer::MakeWindows(uint32_t in, uint32_t out, ResizeFilter filter, std::vector<Window>& windows) {
  windows.resize(out);
  const float half = filter == ResizeFilter::kBilinear ? 1 : 2;
  // float32 where the original's tensors are, double where its literals make it so.
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  const float support = scale >= 1 ? half * scale : half;
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
      window.weights.push_back(WeightAt(filter, x));
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
  MakeWindows(sizes.in.width, sizes.out.width, sizes.filter, columns_);
  MakeWindows(sizes.in.height, sizes.out.height, sizes.filter, rows_);
  lanes_.resize(size_t{kLanes} * sizes.in.width);
  resized_.resize(size_t{kLanes} * sizes.out.width);
  waiting_ = taken_ = 0;
}

// Bytes to floats by the table, into the lanes of this row.
void FloatResizer::Take(const PlanarRow& row) {
  for (size_t c = 0; c < 3; ++c) {
    float* const lane = lanes_.data() + 3 * waiting_ + c;
    for (uint32_t x = 0; x < sizes_.in.width; ++x) lane[size_t{kLanes} * x] = (*table_)[row.plane[c][x]];
  }
  if (++waiting_ == kRows || taken_ + waiting_ == sizes_.in.height) FilterLanes();
}

// Filters the rows that wait across, then adds each to the result. Lanes without a row have earlier values.
void FloatResizer::FilterLanes() {
  const Loops& loops = FastestLoops();
  const uint32_t width = sizes_.out.width;
  float sums[kLanes];
  for (uint32_t x = 0; x < width; ++x) {
    const Window& window = columns_[x];
    loops.sum_lanes(lanes_.data() + size_t{kLanes} * window.first, window.weights.data(),
                    window.weights.size(), sums);
    for (size_t i = 0; i < kLanes; ++i) resized_[i * width + x] = sums[i];
  }
  for (uint32_t r = 0; r < waiting_; ++r, ++taken_) {
    for (size_t c = 0; c < 3; ++c) AddRow(resized_.data() + (3 * r + c) * width, c);
  }
  waiting_ = 0;
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
    } else if (weight <= NumRounded(count)) {
      for (uint32_t x = 0; x < width; ++x) sum[x] += row[x] * by;
    } else {
      FastestLoops().add_fused(row, by, width, sum);
    }
  }
}

void RoundToBytes(std::span<const float> values, uint8_t* bytes) {
  // Adding 1.5 * 2^23 leaves no bits for a fraction, so that the addition rounds, halves to even.
  constexpr float kShift = 12582912;
  for (size_t i = 0; i < values.size(); ++i) {
    const float clamped = std::min(std::max(values[i], 0.0f), 255.0f);
    bytes[i] = static_cast<uint8_t>(static_cast<int32_t>(clamped + kShift - kShift));
  }
}

}  // namespace evenkeel::preprocess
