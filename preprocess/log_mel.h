// Log-mel features of speech, as WhisperFeatureExtractor's numpy path computes them
// (transformers' models/whisper/feature_extraction_whisper.py and audio_utils.py), to 1e-6.
//
// Everything is computed in f64 with our own transform and logarithm, so that every CPU gives the same bits.
//
// Thread safety: const after construction; may be used from many threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel {

class LogMel {
 public:
  static constexpr uint32_t kWindow = 400;      // samples; also the length of the transform
  static constexpr uint32_t kHop = 160;         // samples
  static constexpr uint32_t kFrames = 3000;     // 30 s
  static constexpr uint32_t kSamples = 480000;  // 30 s at 16 kHz
  static constexpr uint32_t kBins = kWindow / 2 + 1;

  explicit LogMel(uint32_t num_mels);

  // `samples`: mono, 16 kHz; those beyond 30 s are not used, missing ones are zero. `out`: [num_mels, 3000].
  // False where a value is not finite.
  bool Compute(std::span<const float> samples, std::span<float> out) const;

 private:
  // A triangle of the filter bank: weights of the bins from `first`.
  struct Triangle {
    uint32_t first = 0;
    std::vector<double> weights;
  };
  // Powers of `kLanes` frames from frame `begin`, [bins][lanes].
  void Powers(std::span<const float> samples, uint32_t begin, std::vector<double>& scratch,
              std::vector<double>& powers) const;

  uint32_t num_mels_;
  std::vector<double> window_;
  std::vector<double> cos_;  // of a turn's 400ths
  std::vector<double> sin_;
  std::vector<Triangle> triangles_;
};

}  // namespace evenkeel
