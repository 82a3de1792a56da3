// Log-mel features as Kaldi's "fbank" computes them: of each frame the mean is subtracted, then a pre-emphasis applied.
// Equal to what transformers' audio_utils.spectrogram makes for SeamlessM4TFeatureExtractor, and for ASTFeatureExtractor
// where torchaudio is not installed, within one unit in the last place of f32.
//
// Example:
//     const KaldiFeatures features({.num_mels = 80, .window = KaldiWindow::kPovey, .gain = 32768});
//     std::vector<float> by_mel(80 * KaldiFeatures::Frames(clip.size()));
//     if (!features.Compute(clip, by_mel)) return absl::DataLossError("samples are not finite");
//
// Thread safety: const after construction; may be used from many threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "preprocess/audio/mel_spectrum.h"

namespace evenkeel::preprocess {

enum class KaldiWindow : uint8_t { kHann, kPovey };  // both symmetric; Povey's is Hann's to the power of 0.85

struct KaldiSettings {
  uint32_t num_mels = 80;
  KaldiWindow window = KaldiWindow::kPovey;
  double gain = 1;  // samples are multiplied by it first: 32768 for those of 16 bits
};

class KaldiFeatures {
 public:
  static constexpr uint32_t kWindow = 400;  // samples at 16 kHz
  static constexpr uint32_t kHop = 160;

  explicit KaldiFeatures(const KaldiSettings& settings);

  // Whole frames of a clip; samples after the last one are not used.
  static constexpr uint64_t Frames(uint64_t samples) {
    return samples < kWindow ? 0 : (samples - kWindow) / kHop + 1;
  }
  // `samples`: mono, 16 kHz. `out`: [num_mels, Frames(samples.size())], natural logarithms. False: a value is not finite.
  bool Compute(std::span<const float> samples, std::span<float> out) const;

 private:
  static constexpr uint32_t kPoints = 512;

  KaldiSettings settings_;
  std::array<double, kWindow> window_;
  MelSpectrum spectrum_;
};

}  // namespace evenkeel::preprocess
