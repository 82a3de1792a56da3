// The inner loop of LogMel: windows of samples to logarithms of mel powers, several frames at once, and the
// fastest kernel for this CPU. All kernels give the same bits: a frame's operations and their order are the
// same, and none is fused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/audio/exact_math.h"

namespace evenkeel::preprocess {

inline constexpr uint32_t kMelWindow = 400;  // samples; also the length of the transform
inline constexpr uint32_t kMelHop = 160;     // samples
inline constexpr uint32_t kMelBins = kMelWindow / 2 + 1;
inline constexpr double kMelFloor = 1e-10;  // the smallest power

// One triangle of the filter bank: weights of the bins from `first` on.
struct MelTriangle {
  uint32_t first = 0;
  std::vector<double> weights;
};

// Triangular filters over the points / 2 + 1 bins of a transform at `rate`: filter m rises from edge m to edge m + 1, in Hz,
// and falls to edge m + 2.
std::vector<MelTriangle> TrianglesBetween(std::span<const double> edges, uint32_t points, double rate);

// Slaney's triangular filters from 0 Hz to `most_hertz` over the points / 2 + 1 bins of a transform at `rate`, as in
// audio_utils.mel_filter_bank(norm="slaney", mel_scale="slaney").
std::vector<MelTriangle> SlaneyTriangles(uint32_t num_mels, uint32_t points, double rate, double most_hertz);

struct FifthTurns {
  double cos1, sin1;  // of a fifth of a turn
  double cos2, sin2;  // of two fifths
};

struct MelTables {
  explicit MelTables(uint32_t num_mels);

  std::array<double, kMelWindow> window;  // half of the periodic Hann window
  // The transform of 400 real points is computed as one of 200 complex points, in passes of 8, 5 and 5.
  FifthTurns fifths;
  std::array<Rotation, 4 * 8> second_pass;  // [point][1 to 4]
  std::array<Rotation, 4 * 40> third_pass;
  std::array<Rotation, kMelBins> bins;  // 400ths of a turn
  std::vector<MelTriangle> triangles;
};

struct MelKernel {
  const char* name;
  uint32_t frames;  // computed at once
  // Frame l is the window at `samples` + l * kMelHop. Writes log10(max(power, kMelFloor)) as
  // [num_mels][stride], `frames` values in each row. False: a power is not finite.
  bool (*log_mel)(const MelTables& tables, const float* samples, float* out, size_t stride);
};
// The fastest one first; the last one runs on every CPU. Kernels that this CPU cannot run are left out.
std::vector<MelKernel> MelKernels();

}  // namespace evenkeel::preprocess
