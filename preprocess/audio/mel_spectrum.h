// Powers of frames in the bands of a mel scale, for extractors with a transform of a power of two points. (LogMel has
// Whisper's 400.) In f64, as transformers' audio_utils.spectrogram computes them.
//
// Every CPU gives the same bits: all operations are additions, multiplications and divisions in one order.
//
// Example:
//     const MelSpectrum spectrum(512, KaldiBands({.num_mels = 80}));
//     std::vector<FramePair> powers(80);
//     spectrum.Powers(two_windowed_frames, powers);
//
// Thread safety: const after construction; may be used from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/audio/exact_math.h"
#include "preprocess/audio/log_mel_kernels.h"

namespace evenkeel::preprocess {

// The same element of two frames, which are computed at once.
using FramePair = double __attribute__((vector_size(16)));

// Bands of equal width on a mel scale.
struct MelRange {
  uint32_t num_mels = 80;
  uint32_t points = 512;
  uint32_t rate = 16000;
  double least_hertz = 20;
  double most_hertz = 8000;
};
// Those of audio_utils.mel_filter_bank(mel_scale="kaldi", triangularize_in_mel_space=True).
std::vector<MelTriangle> KaldiBands(const MelRange& range);
// Those of audio_utils.mel_filter_bank(mel_scale="htk", norm=None).
std::vector<MelTriangle> HtkBands(const MelRange& range);

// What a band adds up.
enum class BinValue : uint8_t {
  kPower,       // of bins that are rounded to f32 before they are squared, as in transformers' numpy path
  kExactPower,  // of bins in f64
  kMagnitude,   // in f32, of bins that are rounded to f32
};

class MelSpectrum {
 public:
  static constexpr uint32_t kMaxPoints = 1024;

  // `points`: a power of two from 4 to kMaxPoints. `bands`: of the points / 2 + 1 bins.
  MelSpectrum(uint32_t points, std::vector<MelTriangle> bands, BinValue value = BinValue::kPower);

  size_t num_mels() const { return bands_.size(); }
  // `frame`: `points` windowed samples. Writes one power, or magnitude, for each band.
  void Powers(std::span<const FramePair> frame, std::span<FramePair> powers) const;

 private:
  uint32_t points_;
  BinValue value_;
  std::vector<MelTriangle> bands_;
  std::vector<uint32_t> order_;      // where a point begins: its place with the bits in reverse
  std::vector<Rotation> rotations_;  // of each pass, one after another
  std::vector<Rotation> bins_;       // points-ths of a turn
};

}  // namespace evenkeel::preprocess
