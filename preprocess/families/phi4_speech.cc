// Phi-4-multimodal's speech: log-mel features of the whole frames of a clip, each with a pre-emphasis of its own. A
// placeholder stands for audio_compression_rate frames.
//
// The rules are those of transformers' models/phi4_multimodal/feature_extraction_phi4_multimodal.py, for a clip alone.
// The extractor computes in f32 except for the transform, which is in f64; this file in f64 after the pre-emphasis,
// with bins rounded to f32 as there.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "core/status.h"
#include "preprocess/audio/frame_powers.h"
#include "preprocess/audio/mel_spectrum.h"
#include "preprocess/families/families.h"
#include "preprocess/families/speech_encoder.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kHop = 160;
constexpr uint32_t kWindow = 400;
constexpr uint32_t kPoints = 512;
constexpr float kEmphasis = 0.97f;
constexpr float kGain = 32768;
constexpr double kFloor = 1;  // the smallest power

struct Phi4SpeechSettings {
  uint32_t num_mels = 80;
  double least_hertz = 0;
  double most_hertz = 7690;
  // Frames of a token; tokens that become one; tokens of a frame.
  uint32_t compression = 8, downsampling = 1, stride = 1;
};

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

class Phi4Speech final : public SpeechEncoder {
 public:
  Phi4Speech(const Phi4SpeechSettings& settings, const Limits& limits)
      : SpeechEncoder({{"audio_input_features", DType::kF32, true, {settings.num_mels}, nullptr},
                       {"audio_embed_sizes", DType::kI64, false, {}, nullptr}},
                      limits, {.least_samples = kWindow}),
        settings_(settings),
        spectrum_(kPoints, KaldiBands({.num_mels = settings.num_mels,
                                       .points = kPoints,
                                       .rate = kSpeechRate,
                                       .least_hertz = settings.least_hertz,
                                       .most_hertz = settings.most_hertz})) {
    for (uint32_t i = 0; i < kWindow; ++i) {
      window_[i] = 0.54 - 0.46 * RotationOf(i, kWindow - 1).cos;
    }
  }

  std::vector<MediumStyle> styles() const override {
    return {{.medium = Medium::kAudio, .placeholder = "<|audio|>"}};
  }

 protected:
  ItemLengths LengthsOf(uint64_t samples) const override {
    const uint64_t frames = (samples - kWindow) / kHop + 1;
    const uint64_t tokens =
        CeilDiv(CeilDiv(frames * settings_.stride, settings_.compression), settings_.downsampling);
    return {static_cast<uint32_t>(frames), static_cast<uint32_t>(frames), static_cast<uint32_t>(tokens)};
  }

  void WriteMask(uint64_t samples, std::span<int64_t> sizes) const override {
    sizes[0] = LengthsOf(samples).output_rows;
  }

  bool Features(std::span<const float> samples, std::span<float> out) const override {
    const size_t num_mels = settings_.num_mels;
    const auto sample = [&](size_t frame, uint32_t i) {
      return double{Emphasised(&samples[frame * kHop], i)} * window_[i];
    };
    const auto take = [&](size_t frame, size_t mel, double power) {
      out[frame * num_mels + mel] = static_cast<float>(ExactLog(std::max(power, kFloor)));
    };
    return ForEachPower(spectrum_, {.frames = out.size() / num_mels, .length = kWindow}, sample, take);
  }

 private:
  // In f32, as the extractor's. The first sample of a frame stands before itself.
  static float Emphasised(const float* frame, uint32_t i) {
    return (frame[i] - kEmphasis * frame[i == 0 ? 0 : i - 1]) * kGain;
  }

  const Phi4SpeechSettings settings_;
  const MelSpectrum spectrum_;
  std::array<double, kWindow> window_;
};

}  // namespace

MadeFamily MakePhi4Speech(ConfigFile config, const FamilySource& source) {
  constexpr uint64_t kMost = 1 << 10;
  Phi4SpeechSettings settings;
  settings.num_mels = static_cast<uint32_t>(config.Uint("feature_size", 80, 1, 512));
  settings.compression = static_cast<uint32_t>(config.Uint("audio_compression_rate", 8, 1, kMost));
  settings.downsampling = static_cast<uint32_t>(config.Uint("audio_downsample_rate", 1, 1, kMost));
  settings.stride = static_cast<uint32_t>(config.Uint("audio_feat_stride", 1, 1, kMost));
  settings.least_hertz = config.Real("mel_min_frequency", settings.least_hertz);
  settings.most_hertz = config.Real("mel_max_frequency", settings.most_hertz);
  config.Pin("hop_length", double{kHop});
  config.Pin("n_fft", double{kPoints});
  config.Pin("win_length", double{kWindow});
  config.Pin("preemphasis", 0.97);
  config.Inert({"padding_value", "dynamic_hd", "resample"});
  config.NotNull({"feature_size", "hop_length", "n_fft", "win_length", "preemphasis",
                  "audio_compression_rate", "audio_downsample_rate", "audio_feat_stride", "mel_min_frequency",
                  "mel_max_frequency"});
  ReadCommonSpeechKeys(config, kSpeechRate);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (!(settings.least_hertz >= 0 && settings.least_hertz < settings.most_hertz &&
        settings.most_hertz <= kSpeechRate / 2.0)) {
    return config.Error("mel_max_frequency", "must be above mel_min_frequency, both from 0 to 8000");
  }
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  return std::make_unique<Phi4Speech>(settings, source.limits);
}

}  // namespace evenkeel::preprocess
