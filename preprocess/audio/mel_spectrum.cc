// A transform of real points by one of half as many complex points, in passes of two, and its powers added up in bands.
#include "preprocess/audio/mel_spectrum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace evenkeel::preprocess {
namespace {

struct ComplexPair {
  FramePair re, im;
};

using FloatPair = float __attribute__((vector_size(8)));

// To f32 and back, as numpy's complex64 has it. Not by casts of the elements, which GCC 12 drops at -O2 where it makes a
// vector of them.
FramePair Rounded(const FramePair& value) {
  return __builtin_convertvector(__builtin_convertvector(value, FloatPair), FramePair);
}

// As numpy's abs of complex64.
FramePair MagnitudeOf(const FramePair& power) {
  return Rounded(FramePair{std::sqrt(power[0]), std::sqrt(power[1])});
}

double KaldiMel(double hertz) { return 1127 * ExactLog(1 + hertz / 700); }

double HtkMel(double hertz) { return 2595 * ExactLog10(1 + hertz / 700); }
double HtkHertz(double mel) { return 700 * (ExactExp(mel / 2595 * std::numbers::ln10) - 1); }

}  // namespace

std::vector<MelTriangle> KaldiBands(const MelRange& range) {
  const uint32_t num_mels = range.num_mels, points = range.points;
  const double least = KaldiMel(range.least_hertz), most = KaldiMel(range.most_hertz);
  const double step = (most - least) / (num_mels + 1);
  const auto edge = [&](uint32_t i) { return i == num_mels + 1 ? most : least + i * step; };
  std::vector<MelTriangle> bands(num_mels);
  for (uint32_t m = 0; m < num_mels; ++m) {
    for (uint32_t bin = 0; bin <= points / 2; ++bin) {
      const double mel = KaldiMel(static_cast<double>(range.rate) / points * bin);
      const double up = (mel - edge(m)) / (edge(m + 1) - edge(m));
      const double down = (edge(m + 2) - mel) / (edge(m + 2) - edge(m + 1));
      const double weight = std::max(0.0, std::min(up, down));
      if (weight == 0) continue;
      if (bands[m].weights.empty()) bands[m].first = bin;
      bands[m].weights.resize(bin - bands[m].first + 1);
      bands[m].weights.back() = weight;
    }
  }
  return bands;
}

std::vector<MelTriangle> HtkBands(const MelRange& range) {
  const double least = HtkMel(range.least_hertz), most = HtkMel(range.most_hertz);
  const double step = (most - least) / (range.num_mels + 1);
  std::vector<double> edges(range.num_mels + 2);
  for (uint32_t i = 0; i < edges.size(); ++i) edges[i] = HtkHertz(least + i * step);
  return TrianglesBetween(edges, range.points, range.rate);
}

MelSpectrum::MelSpectrum(uint32_t points, std::vector<MelTriangle> bands, BinValue value)
    : points_(points), value_(value), bands_(std::move(bands)), order_(points / 2) {
  const uint32_t half = points / 2;
  for (uint32_t i = 1; i < half; ++i) order_[i] = order_[i / 2] / 2 + (i % 2 == 1 ? half / 2 : 0);
  for (uint32_t done = 1; done < half; done *= 2) {
    for (uint32_t j = 0; j < done; ++j) rotations_.push_back(RotationOf(j, 2 * done));
  }
  for (uint32_t bin = 0; bin <= half; ++bin) bins_.push_back(RotationOf(bin, points));
}

void MelSpectrum::Powers(std::span<const FramePair> frame, std::span<FramePair> powers) const {
  const uint32_t half = points_ / 2;
  // Even samples are the real parts, odd ones the imaginary parts.
  std::array<ComplexPair, kMaxPoints / 2> z;
  for (uint32_t i = 0; i < half; ++i) z[order_[i]] = {frame[2 * i], frame[2 * i + 1]};
  const Rotation* rotations = rotations_.data();
  for (uint32_t done = 1; done < half; rotations += done, done *= 2) {
    for (uint32_t begin = 0; begin < half; begin += 2 * done) {
      for (uint32_t j = begin; j < begin + done; ++j) {
        const Rotation& by = rotations[j - begin];  // times cos - i sin
        const ComplexPair a = z[j], b = z[j + done];
        const FramePair re = b.re * by.cos + b.im * by.sin, im = b.im * by.cos - b.re * by.sin;
        z[j] = {a.re + re, a.im + im};
        z[j + done] = {a.re - re, a.im - im};
      }
    }
  }
  // Of the even samples, (z[k] + conj(z[half - k])) / 2; of the odd ones, (z[k] - conj(z[half - k])) / 2i, which one
  // rotation more joins.
  std::array<FramePair, kMaxPoints / 2 + 1> bins;
  for (uint32_t bin = 0; bin <= half; ++bin) {
    const ComplexPair a = z[bin % half], b = z[(half - bin) % half];
    const FramePair even_re = (a.re + b.re) * 0.5, even_im = (a.im - b.im) * 0.5;
    const FramePair odd_re = (a.im + b.im) * 0.5, odd_im = (b.re - a.re) * 0.5;
    const Rotation& by = bins_[bin];
    FramePair re = even_re + (odd_re * by.cos + odd_im * by.sin);
    FramePair im = even_im + (odd_im * by.cos - odd_re * by.sin);
    if (value_ != BinValue::kExactPower) {
      re = Rounded(re);
      im = Rounded(im);
    }
    const FramePair power = re * re + im * im;
    bins[bin] = value_ == BinValue::kMagnitude ? MagnitudeOf(power) : power;
  }
  for (size_t m = 0; m < bands_.size(); ++m) {
    FramePair power = {0, 0};
    for (size_t i = 0; i < bands_[m].weights.size(); ++i) {
      power += bins[bands_[m].first + i] * bands_[m].weights[i];
    }
    powers[m] = power;
  }
}

}  // namespace evenkeel::preprocess
