// Tables of the mel filter bank and of the transform, and the kernels for each instruction set.
#include "preprocess/audio/log_mel_kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/cpu.h"

// Vectors wider than the baseline's are only passed between inlined functions, so their calling convention
// does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kPoints = kMelWindow / 2;
constexpr double kHalfRoot = 0.70710678118654752440;
// Of the logarithm: 2^52 and the bits of 2^52, 1 and sqrt(1/2), which split a number into exponent and
// mantissa; and the coefficients 2 / (ln(10) (2n + 1)) of the series of 2 / ln(10) * atanh(s), of s^(2n + 1).
constexpr double kTwoTo52 = 4503599627370496.0;
constexpr uint64_t kTwoTo52Bits = 0x4330000000000000;
constexpr uint64_t kOneBits = 0x3ff0000000000000;
constexpr uint64_t kHalfRootBits = 0x3fe6a09e667f3bcd;
constexpr double kLog10Of2 = 0.30102999566398119521;
constexpr double kTwoByLn10 = 0.86858896380650365530;
constexpr double kAtanh[6] = {kTwoByLn10,     kTwoByLn10 / 3, kTwoByLn10 / 5,
                              kTwoByLn10 / 7, kTwoByLn10 / 9, kTwoByLn10 / 11};

namespace portable {
#define EVENKEEL_LANES 2
#define EVENKEEL_TARGET
#include "preprocess/audio/log_mel_lanes.inc"
#undef EVENKEEL_TARGET
#undef EVENKEEL_LANES
}  // namespace portable

#ifdef __x86_64__
namespace avx2 {
#define EVENKEEL_LANES 4
#define EVENKEEL_TARGET __attribute__((target("avx2")))
#include "preprocess/audio/log_mel_lanes.inc"
#undef EVENKEEL_TARGET
#undef EVENKEEL_LANES
}  // namespace avx2
#endif

// Slaney's mel scale (Auditory Toolbox, librosa's default): 200/3 Hz a mel up to 1 kHz, which is mel 15, and
// 27 mels for every factor of 6.4 above it.
double HertzToMel(double hertz) {
  if (hertz < 1000) return 3 * hertz / 200;
  return 15 + ExactLog(hertz / 1000) * (27 / ExactLog(6.4));
}
double MelToHertz(double mel) {
  if (mel < 15) return 200 * mel / 3;
  return 1000 * ExactExp(ExactLog(6.4) / 27 * (mel - 15));
}

// The twiddle factors of a pass that makes blocks of 5 * `done` points.
template <size_t kSize>
void FillTurns(uint32_t done, std::array<Rotation, kSize>& turns) {
  for (uint32_t j = 0; j < done; ++j) {
    for (uint32_t p = 1; p < 5; ++p) turns[4 * j + p - 1] = RotationOf(p * j, 5 * done);
  }
}

}  // namespace

// Only bins with a weight are stored; a narrow triangle between two bins has none.
std::vector<MelTriangle> TrianglesBetween(std::span<const double> edges, uint32_t points, double rate) {
  std::vector<MelTriangle> triangles(edges.size() - 2);
  for (size_t m = 0; m < triangles.size(); ++m) {
    MelTriangle& triangle = triangles[m];
    for (uint32_t bin = 0; bin <= points / 2; ++bin) {
      double hertz = rate / 2 * bin / (points / 2);
      double up = (hertz - edges[m]) / (edges[m + 1] - edges[m]);
      double down = (edges[m + 2] - hertz) / (edges[m + 2] - edges[m + 1]);
      double weight = std::max(0.0, std::min(up, down));
      if (weight == 0) continue;
      if (triangle.weights.empty()) triangle.first = bin;
      triangle.weights.resize(bin - triangle.first + 1);
      triangle.weights.back() = weight;
    }
  }
  return triangles;
}

// The edges are equally spaced in mels. His normalisation, 2 / width in Hz, gives every triangle an area of 1.
std::vector<MelTriangle> SlaneyTriangles(uint32_t num_mels, uint32_t points, double rate, double most_hertz) {
  const double top = HertzToMel(most_hertz);
  std::vector<double> edges(num_mels + 2);
  for (uint32_t i = 0; i < edges.size(); ++i) edges[i] = MelToHertz(top * i / (num_mels + 1));
  std::vector<MelTriangle> triangles = TrianglesBetween(edges, points, rate);
  for (uint32_t m = 0; m < num_mels; ++m) {
    const double norm = 2 / (edges[m + 2] - edges[m]);
    for (double& weight : triangles[m].weights) weight *= norm;
  }
  return triangles;
}

MelTables::MelTables(uint32_t num_mels) : triangles(SlaneyTriangles(num_mels, kMelWindow, 16000, 8000)) {
  // Half of the Hann window; the other factor of two is in Powers().
  for (uint32_t i = 0; i < kMelWindow; ++i) window[i] = 0.25 - 0.25 * RotationOf(i, kMelWindow).cos;
  for (uint32_t i = 0; i < kMelBins; ++i) bins[i] = RotationOf(i, kMelWindow);
  const Rotation once = RotationOf(1, 5), twice = RotationOf(2, 5);
  fifths = {once.cos, once.sin, twice.cos, twice.sin};
  FillTurns(8, second_pass);
  FillTurns(40, third_pass);
}

std::vector<MelKernel> MelKernels() {
  std::vector<MelKernel> kernels;
#ifdef __x86_64__
  if (MayUseAvx2()) kernels.push_back({"avx2", 4, avx2::LogMelOfLanes});
#endif
  kernels.push_back({"portable", 2, portable::LogMelOfLanes});
  return kernels;
}

}  // namespace evenkeel::preprocess
