// Log-mel features of speech, equal to WhisperFeatureExtractor's numpy path (transformers'
// models/whisper/feature_extraction_whisper.py and audio_utils.py) within 1e-6.
//
// Everything is computed in f64 by our own transform and logarithm, so that every CPU gives the same bits.
//
// Thread safety: const after construction; may be used from many threads.
#pragma once

#include <cstdint>
#include <span>

#include "preprocess/audio/log_mel_kernels.h"

namespace evenkeel::preprocess {

class LogMel {
 public:
  static constexpr uint32_t kWindow = kMelWindow;  // samples
  static constexpr uint32_t kHop = kMelHop;        // samples
  static constexpr uint32_t kFrames = 3000;        // 30 s
  static constexpr uint32_t kSamples = 480000;     // 30 s at 16 kHz
  static constexpr uint32_t kBins = kMelBins;

  // `kernel`: one of MelKernels(); tests and benchmarks choose one.
  explicit LogMel(uint32_t num_mels, MelKernel kernel = MelKernels().front());

  // `samples`: mono, 16 kHz; those after `padded_samples` are ignored, missing ones are zero. `out`:
  // [num_mels, padded_samples / 160], rounded down; padded_samples > 200. False: a value is not
  // finite.
  bool Compute(std::span<const float> samples, std::span<float> out,
               uint32_t padded_samples = kSamples) const;

 private:
  MelTables tables_;
  MelKernel kernel_;
};

}  // namespace evenkeel::preprocess
