// Cuts a clip into frames, prepares two of them at once as Kaldi does, and takes the logarithms of their mel powers.
#include "preprocess/audio/kaldi_features.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace evenkeel::preprocess {
namespace {

constexpr double kFloor = 1.192092955078125e-07;  // the smallest power, as transformers writes it
constexpr double kEmphasis = 0.97;
constexpr uint32_t kAtOnce = 2;

}  // namespace

KaldiFeatures::KaldiFeatures(const KaldiSettings& settings)
    : settings_(settings),
      spectrum_(kPoints, KaldiBands({.num_mels = settings.num_mels, .points = kPoints})) {
  for (uint32_t i = 0; i < kWindow; ++i) {
    const double hann = i == 0 || i == kWindow - 1 ? 0 : 0.5 - 0.5 * RotationOf(i, kWindow - 1).cos;
    window_[i] = settings.window == KaldiWindow::kHann || hann == 0 ? hann : ExactExp(0.85 * ExactLog(hann));
  }
}

bool KaldiFeatures::Compute(std::span<const float> samples, std::span<float> out) const {
  const size_t frames = Frames(samples.size()), num_mels = spectrum_.num_mels();
  std::array<FramePair, kPoints> frame = {};  // zeros after the window
  std::vector<FramePair> powers(num_mels);
  bool finite = true;
  for (size_t begin = 0; begin < frames; begin += kAtOnce) {
    const size_t count = std::min<size_t>(kAtOnce, frames - begin);
    const float* first = &samples[begin * kHop];
    const float* second = count == 1 ? first : first + kHop;
    FramePair sum = {0, 0};
    for (uint32_t i = 0; i < kWindow; ++i) {
      frame[i] = FramePair{first[i] * settings_.gain, second[i] * settings_.gain};
      sum += frame[i];
    }
    const FramePair mean = sum / kWindow;
    FramePair before = {0, 0};
    for (uint32_t i = 0; i < kWindow; ++i) {
      const FramePair value = frame[i] - mean;
      frame[i] = (i == 0 ? value * (1 - kEmphasis) : value - kEmphasis * before) * window_[i];
      before = value;
    }
    spectrum_.Powers(frame, powers);
    for (size_t mel = 0; mel < num_mels; ++mel) {
      for (size_t l = 0; l < count; ++l) {
        const double power = powers[mel][l];
        finite &= std::isfinite(power);
        out[mel * frames + begin + l] =
            std::isfinite(power) ? static_cast<float>(ExactLog(std::max(power, kFloor))) : 0.0f;
      }
    }
  }
  return finite;
}

}  // namespace evenkeel::preprocess
