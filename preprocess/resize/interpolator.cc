// Positions, weights and sums as in aten/src/ATen/native/cpu/UpSampleKernel.cpp (HelperInterpLinear, HelperInterpCubic,
// Interpolate), in float32: first across, then down.
//
// The order of roundings is the compiler's of torch's wheels, found by comparison: the second product is rounded, and
// the first, then the third and the fourth, are added to it by fused multiply-adds. std::fma is exact on every CPU, so
// the result does not depend on ours; the loops are compiled a second time for CPUs that have it as an instruction.
#include "preprocess/resize/interpolator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/cpu.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kCubicTaps = 4;
constexpr float kA = -0.75f;  // of the cubic, as in OpenCV

// The cubic within 1 of its centre, and from 1 to 2.
float Near(float x) { return (std::fma(kA + 2, x, -(kA + 3)) * x) * x + 1; }
float Far(float x) { return std::fma(std::fma(kA, x, -5 * kA), x, 8 * kA) * x - 4 * kA; }

// values[i] = sum over j of inputs[j][i] * weights[j], of `taps` inputs.
inline __attribute__((always_inline)) void SumRows(const float* const* inputs, const float* weights,
                                                   uint32_t taps, size_t count, float* values) {
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::fma(inputs[0][i], weights[0], inputs[1][i] * weights[1]);
  }
  for (uint32_t j = 2; j < taps; ++j) {
    for (size_t i = 0; i < count; ++i) values[i] = std::fma(inputs[j][i], weights[j], values[i]);
  }
}

// The sum for one place, whose inputs are anywhere in `line`.
inline __attribute__((always_inline)) float SumPlace(const float* line, const uint32_t* inputs,
                                                     const float* weights, uint32_t taps) {
  float sum = std::fma(line[inputs[0]], weights[0], line[inputs[1]] * weights[1]);
  for (uint32_t j = 2; j < taps; ++j) sum = std::fma(line[inputs[j]], weights[j], sum);
  return sum;
}

// The places of a row, each of which is `stride` 32-bit words after the one before it: its inputs, then its weights.
inline __attribute__((always_inline)) void SumPlaces(const float* line, const uint32_t* inputs,
                                                     const float* weights, size_t stride, uint32_t taps,
                                                     size_t count, float* values) {
  for (size_t i = 0; i < count; ++i) {
    values[i] = SumPlace(line, inputs + i * stride, weights + i * stride, taps);
  }
}

// The loops for a CPU.
struct Loops {
  void (*rows)(const float* const* inputs, const float* weights, uint32_t taps, size_t count, float* values);
  void (*places)(const float* line, const uint32_t* inputs, const float* weights, size_t stride,
                 uint32_t taps, size_t count, float* values);
};

void RowsPortably(const float* const* inputs, const float* weights, uint32_t taps, size_t count,
                  float* values) {
  SumRows(inputs, weights, taps, count, values);
}
void PlacesPortably(const float* line, const uint32_t* inputs, const float* weights, size_t stride,
                    uint32_t taps, size_t count, float* values) {
  SumPlaces(line, inputs, weights, stride, taps, count, values);
}

#ifdef __x86_64__
#define EVENKEEL_FMA __attribute__((target("avx2,fma")))
EVENKEEL_FMA void RowsByFma(const float* const* inputs, const float* weights, uint32_t taps, size_t count,
                            float* values) {
  SumRows(inputs, weights, taps, count, values);
}
EVENKEEL_FMA void PlacesByFma(const float* line, const uint32_t* inputs, const float* weights, size_t stride,
                              uint32_t taps, size_t count, float* values) {
  SumPlaces(line, inputs, weights, stride, taps, count, values);
}
#endif

const Loops& FastestLoops() {
  static constexpr Loops kPortable = {RowsPortably, PlacesPortably};
#ifdef __x86_64__
  static constexpr Loops kFma = {RowsByFma, PlacesByFma};
  static const bool kHasFma = MayUseAvx2() && __builtin_cpu_supports("fma");
  if (kHasFma) return kFma;
#endif
  return kPortable;
}

}  // namespace

// The position of output i among the inputs is scale * (i + 0.5) - 0.5. Bilinear: not below 0, and each step is
// rounded; bicubic: rounded once.
void Interpolator::MakeTaps(uint32_t in, uint32_t out, std::vector<Taps>& taps) const {
  taps.resize(out);
  const bool cubic = num_taps_ == kCubicTaps;
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  const int64_t last = int64_t{in} - 1;
  for (uint32_t i = 0; i < out; ++i) {
    Taps& place = taps[i];
    if (!cubic && in == out) {
      place = {{i, i}, {1, 0}};
      continue;
    }
    const float middle = static_cast<float>(i) + 0.5f;
    const float position = cubic ? std::fma(scale, middle, -0.5f) : std::max(scale * middle - 0.5f, 0.0f);
    const int64_t first = std::min(static_cast<int64_t>(std::floor(position)), last);
    const float after = std::clamp(position - static_cast<float>(first), 0.0f, 1.0f), before = 1 - after;
    const int64_t offset = cubic ? -1 : 0;
    for (uint32_t j = 0; j < num_taps_; ++j) {
      place.input[j] = static_cast<uint32_t>(std::clamp<int64_t>(first + offset + j, 0, last));
    }
    if (cubic) {
      place.weight = {Far(after + 1), Near(after), Near(before), Far(before + 1)};
    } else {
      place.weight = {before, after};
    }
  }
}

void Interpolator::Start(const Sizes& sizes, std::span<const float> table, std::span<float> out) {
  sizes_ = sizes;
  table_ = table;
  out_ = out;
  num_taps_ = sizes.filter == ResizeFilter::kBicubic ? kCubicTaps : 2;
  taken_ = written_ = 0;
  if (sizes.in == sizes.out) return;
  MakeTaps(sizes.in.width, sizes.out.width, columns_);
  MakeTaps(sizes.in.height, sizes.out.height, rows_);
  line_.resize(sizes.in.width);
  across_.resize(size_t{kMaxTaps} * 3 * sizes.out.width);
}

void Interpolator::Take(const PlanarRow& row) {
  const uint32_t y = taken_++;
  if (sizes_.in == sizes_.out) {
    for (size_t c = 0; c < 3; ++c) {
      float* const to = out_.data() + (c * sizes_.out.height + y) * sizes_.out.width;
      for (uint32_t x = 0; x < sizes_.out.width; ++x) to[x] = table_[256 * c + row.plane[c][x]];
    }
    return;
  }
  // Rows that no result needs are skipped.
  if (written_ == sizes_.out.height || y < rows_[written_].input[0]) return;
  FilterAcross(row);
  while (written_ < sizes_.out.height && rows_[written_].input[num_taps_ - 1] <= y) WriteRow(written_++);
}

void Interpolator::FilterAcross(const PlanarRow& row) {
  const uint32_t width = sizes_.out.width;
  const size_t slot = (taken_ - 1) % kMaxTaps;
  static_assert(sizeof(Taps) % sizeof(float) == 0);
  for (size_t c = 0; c < 3; ++c) {
    for (uint32_t x = 0; x < sizes_.in.width; ++x) line_[x] = table_[256 * c + row.plane[c][x]];
    FastestLoops().places(line_.data(), columns_[0].input.data(), columns_[0].weight.data(),
                          sizeof(Taps) / sizeof(float), num_taps_, width,
                          across_.data() + (slot * 3 + c) * width);
  }
}

void Interpolator::WriteRow(uint32_t y) {
  const uint32_t width = sizes_.out.width;
  const Taps& place = rows_[y];
  for (size_t c = 0; c < 3; ++c) {
    const float* inputs[kMaxTaps] = {};
    for (uint32_t j = 0; j < num_taps_; ++j) {
      inputs[j] = across_.data() + (place.input[j] % kMaxTaps * 3 + c) * width;
    }
    FastestLoops().rows(inputs, place.weight.data(), num_taps_, width,
                        out_.data() + (c * sizes_.out.height + y) * width);
  }
}

}  // namespace evenkeel::preprocess
