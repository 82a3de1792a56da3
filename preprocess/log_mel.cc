#include "preprocess/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "preprocess/exact_math.h"

namespace evenkeel {
namespace {

constexpr uint32_t kLanes = 8;                     // frames that are transformed side by side
constexpr uint32_t kPoints = LogMel::kWindow / 2;  // of the complex transform that carries a real one
constexpr std::array<uint32_t, 4> kRadices = {4, 2, 5, 5};  // product: kPoints
constexpr double kMelFloor = 1e-10;

using Lanes = double[kLanes];

// Slaney's scale: linear to 1 kHz, logarithmic above.
double HertzToMel(double hertz) {
  if (hertz < 1000) return 3 * hertz / 200;
  return 15 + ExactLog(hertz / 1000) * (27 / ExactLog(6.4));
}
double MelToHertz(double mel) {
  if (mel < 15) return 200 * mel / 3;
  return 1000 * ExactExp(ExactLog(6.4) / 27 * (mel - 15));
}

// The sample at `position` of the clip reflected at both ends and padded to 30 s.
float Sample(std::span<const float> samples, int64_t position) {
  if (position < 0) position = -position;
  if (position >= LogMel::kSamples) position = 2 * (int64_t{LogMel::kSamples} - 1) - position;
  return static_cast<uint64_t>(position) < samples.size() ? samples[position] : 0.0f;
}

// One pass of Stockham's transform: `radix` blocks of `length` values each become one of radix * length.
void Pass(uint32_t radix, uint32_t done, const double* cos, const double* sin, const Lanes* in_re,
          const Lanes* in_im, Lanes* out_re, Lanes* out_im) {
  const uint32_t groups = kPoints / (radix * done);
  const uint32_t turn = LogMel::kWindow;
  for (uint32_t g = 0; g < groups; ++g) {
    for (uint32_t j = 0; j < done; ++j) {
      for (uint32_t q = 0; q < radix; ++q) {
        Lanes re = {}, im = {};
        for (uint32_t p = 0; p < radix; ++p) {
          // exp(-2 pi i p (j + q done) / (radix done))
          uint32_t step =
              static_cast<uint32_t>(uint64_t{p} * (j + q * done) % (radix * done)) * (turn / (radix * done));
          double c = cos[step], s = -sin[step];
          const double* x = in_re[(g + p * groups) * done + j];
          const double* y = in_im[(g + p * groups) * done + j];
          for (uint32_t l = 0; l < kLanes; ++l) {
            re[l] += x[l] * c - y[l] * s;
            im[l] += x[l] * s + y[l] * c;
          }
        }
        double* to_re = out_re[(g * radix + q) * done + j];
        double* to_im = out_im[(g * radix + q) * done + j];
        for (uint32_t l = 0; l < kLanes; ++l) to_re[l] = re[l], to_im[l] = im[l];
      }
    }
  }
}

}  // namespace

LogMel::LogMel(uint32_t num_mels) : num_mels_(num_mels), window_(kWindow), cos_(kWindow), sin_(kWindow) {
  for (uint32_t i = 0; i < kWindow; ++i) {
    Rotation rotation = RotationOf(i, kWindow);
    cos_[i] = rotation.cos;
    sin_[i] = rotation.sin;
    window_[i] = 0.5 - 0.5 * rotation.cos;  // periodic Hann
  }
  const double top = HertzToMel(8000);
  std::vector<double> edges(num_mels + 2);
  for (uint32_t i = 0; i < edges.size(); ++i) edges[i] = MelToHertz(top * i / (num_mels + 1));
  for (uint32_t m = 0; m < num_mels; ++m) {
    Triangle triangle;
    const double norm = 2 / (edges[m + 2] - edges[m]);
    for (uint32_t bin = 0; bin < kBins; ++bin) {
      double hertz = 8000.0 * bin / (kBins - 1);
      double up = (hertz - edges[m]) / (edges[m + 1] - edges[m]);
      double down = (edges[m + 2] - hertz) / (edges[m + 2] - edges[m + 1]);
      double weight = std::max(0.0, std::min(up, down)) * norm;
      if (weight == 0) continue;
      if (triangle.weights.empty()) triangle.first = bin;
      triangle.weights.resize(bin - triangle.first + 1);
      triangle.weights.back() = weight;
    }
    triangles_.push_back(std::move(triangle));
  }
}

void LogMel::Powers(std::span<const float> samples, uint32_t begin, std::vector<double>& scratch,
                    std::vector<double>& powers) const {
  Lanes* re = reinterpret_cast<Lanes*>(scratch.data());
  Lanes* im = re + kPoints;
  Lanes* next_re = im + kPoints;
  Lanes* next_im = next_re + kPoints;
  for (uint32_t l = 0; l < kLanes; ++l) {
    const int64_t start = int64_t{begin + l} * kHop - kWindow / 2;
    for (uint32_t i = 0; i < kPoints; ++i) {  // even samples are the real parts, odd ones the imaginary
      re[i][l] = Sample(samples, start + 2 * i) * window_[2 * i];
      im[i][l] = Sample(samples, start + 2 * i + 1) * window_[2 * i + 1];
    }
  }
  uint32_t done = 1;
  for (uint32_t radix : kRadices) {
    Pass(radix, done, cos_.data(), sin_.data(), re, im, next_re, next_im);
    std::swap(re, next_re);
    std::swap(im, next_im);
    done *= radix;
  }
  for (uint32_t k = 0; k < kBins; ++k) {
    const double* a_re = re[k % kPoints];
    const double* a_im = im[k % kPoints];
    const double* b_re = re[(kPoints - k) % kPoints];
    const double* b_im = im[(kPoints - k) % kPoints];
    const double c = cos_[k], s = -sin_[k];
    for (uint32_t l = 0; l < kLanes; ++l) {
      double even_re = 0.5 * (a_re[l] + b_re[l]), even_im = 0.5 * (a_im[l] - b_im[l]);
      double odd_re = 0.5 * (a_im[l] + b_im[l]), odd_im = -0.5 * (a_re[l] - b_re[l]);
      // The extractor stores its spectrum as complex64.
      double x = static_cast<float>(even_re + (odd_re * c - odd_im * s));
      double y = static_cast<float>(even_im + (odd_re * s + odd_im * c));
      powers[k * kLanes + l] = x * x + y * y;
    }
  }
}

bool LogMel::Compute(std::span<const float> samples, std::span<float> out) const {
  samples = samples.first(std::min<size_t>(samples.size(), kSamples));
  std::vector<double> scratch(4 * kPoints * kLanes);
  std::vector<double> powers(kBins * kLanes);
  const auto floor = static_cast<float>(ExactLog10(kMelFloor));
  float loudest = floor;
  bool finite = true;
  for (uint32_t begin = 0; begin < kFrames; begin += kLanes) {
    // Frames that see nothing but zeroes. (The end is reflected: its last frames see what precedes it.)
    bool silent = int64_t{begin} * kHop - kWindow / 2 >= static_cast<int64_t>(samples.size()) &&
                  samples.size() + kWindow < kSamples;
    if (!silent) Powers(samples, begin, scratch, powers);
    for (uint32_t m = 0; m < num_mels_; ++m) {
      const Triangle& triangle = triangles_[m];
      Lanes sums = {};
      for (size_t b = 0; !silent && b < triangle.weights.size(); ++b) {
        const double* power = &powers[(triangle.first + b) * kLanes];
        for (uint32_t l = 0; l < kLanes; ++l) sums[l] += triangle.weights[b] * power[l];
      }
      for (uint32_t l = 0; l < kLanes; ++l) {
        finite &= std::isfinite(sums[l]);
        float value = sums[l] > kMelFloor && finite ? static_cast<float>(ExactLog10(sums[l])) : floor;
        loudest = std::max(loudest, value);
        out[size_t{m} * kFrames + begin + l] = value;
      }
    }
  }
  for (float& value : out) value = (std::max(value, loudest - 8.0f) + 4.0f) / 4.0f;
  return finite;
}

}  // namespace evenkeel
