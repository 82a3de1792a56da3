// The loop over a clip's frames that families with a MelSpectrum share. They differ in how a frame's samples are prepared,
// and in what becomes of its powers.
//
// Example:
//     const FrameWindow window{.frames = 98, .begin = 0, .length = 400};
//     const auto sample = [&](size_t frame, uint32_t i) { return clip[160 * frame + i] * hann[i]; };
//     const bool finite = ForEachPower(spectrum, window, sample, [&](size_t frame, size_t mel, double power) {
//       features[frame * spectrum.num_mels() + mel] = static_cast<float>(ExactLog(power + 1));
//     });
//
// Thread safety: a function without state.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/audio/mel_spectrum.h"

namespace evenkeel::preprocess {

struct FrameWindow {
  size_t frames = 0;    // of the clip
  uint32_t begin = 0;   // of the window among the points of the transform; the others are zero
  uint32_t length = 0;  // begin + length is at most MelSpectrum::kMaxPoints
};

// `sample(frame, i)`: element `i` of the frame's window, prepared and weighted, as a double. Calls `take(frame, mel, power)` for
// every power, one frame after another; of those that are not finite with 1. False: there was one.
template <typename Sample, typename Take>
bool ForEachPower(const MelSpectrum& spectrum, const FrameWindow& window, Sample sample, Take take) {
  constexpr size_t kAtOnce = 2;
  std::array<FramePair, MelSpectrum::kMaxPoints> points = {};
  std::vector<FramePair> powers(spectrum.num_mels());
  bool finite = true;
  for (size_t begin = 0; begin < window.frames; begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, window.frames - begin);
    for (uint32_t i = 0; i < window.length; ++i) {
      points[window.begin + i] = FramePair{sample(begin, i), sample(begin + count - 1, i)};
    }
    spectrum.Powers(points, powers);
    for (size_t l = 0; l < count; ++l) {
      for (size_t mel = 0; mel < powers.size(); ++mel) {
        const double power = powers[mel][l];
        finite &= std::isfinite(power);
        take(begin + l, mel, std::isfinite(power) ? power : 1.0);
      }
    }
  }
  return finite;
}

}  // namespace evenkeel::preprocess
