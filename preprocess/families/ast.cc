// Audio Spectrogram Transformer: Kaldi's log-mel features, cut or filled to a number of frames. An output row is a patch,
// or one of the encoder's two further tokens.
//
// The rules are those of transformers' models/audio_spectrogram_transformer, where torchaudio is not installed.
#include <algorithm>
#include <memory>

#include "core/status.h"
#include "preprocess/audio/kaldi_features.h"
#include "preprocess/families/families.h"
#include "preprocess/families/speech_encoder.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMoreTokens = 2;  // of the class and of the distillation

struct AstSettings {
  uint32_t num_mels = 128;
  uint32_t frames = 1024;
  bool normalized = true;
  float mean = 0;
  float divisor = 1;
  uint32_t rows = 0;  // of the encoder's output
};

class Ast final : public SpeechEncoder {
 public:
  Ast(const AstSettings& settings, const Limits& limits)
      : SpeechEncoder({{"input_values", DType::kF32, false, {settings.frames, settings.num_mels}, nullptr}},
                      limits, {.least_samples = KaldiFeatures::kWindow}),
        settings_(settings),
        features_({.num_mels = settings.num_mels, .window = KaldiWindow::kHann}) {}

 protected:
  ItemLengths LengthsOf(uint64_t) const override {
    return {settings_.rows, settings_.frames, settings_.rows};
  }

  uint64_t UsedSamples(uint64_t samples) const override {
    const uint64_t most = KaldiFeatures::kWindow + uint64_t{settings_.frames - 1} * KaldiFeatures::kHop;
    return std::min(samples, most);
  }

  bool Features(std::span<const float> samples, std::span<float> out) const override {
    const size_t frames = KaldiFeatures::Frames(samples.size()), num_mels = settings_.num_mels;
    static thread_local ScratchBytes memory;
    const std::span<float> by_mel = memory.GetAs<float>(num_mels * frames);
    if (!features_.Compute(samples, by_mel)) return false;
    for (size_t frame = 0; frame < frames; ++frame) {
      for (size_t mel = 0; mel < num_mels; ++mel) out[frame * num_mels + mel] = by_mel[mel * frames + frame];
    }
    std::fill(out.begin() + static_cast<ptrdiff_t>(frames * num_mels), out.end(), 0.0f);
    if (!settings_.normalized) return true;
    for (float& value : out) value = (value - settings_.mean) / settings_.divisor;
    return true;
  }

 private:
  const AstSettings settings_;
  const KaldiFeatures features_;
};

// Patches of config.json, in rows of mels and columns of time, which may overlap.
absl::Status ReadPatches(const CheckpointFolder& checkpoint, AstSettings& out) {
  constexpr uint64_t kMost = 1 << 10;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  const auto patch = static_cast<uint32_t>(model.Uint("patch_size", 16, 1, kMost));
  const auto mels_apart = static_cast<uint32_t>(model.Uint("frequency_stride", 10, 1, kMost));
  const auto frames_apart = static_cast<uint32_t>(model.Uint("time_stride", 10, 1, kMost));
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  if (out.num_mels < patch || out.frames < patch) {
    return model.Error("patch_size", "is larger than the extractor's num_mel_bins or max_length");
  }
  out.rows =
      ((out.num_mels - patch) / mels_apart + 1) * ((out.frames - patch) / frames_apart + 1) + kMoreTokens;
  return absl::OkStatus();
}

}  // namespace

MadeFamily MakeAst(ConfigFile config, const FamilySource& source) {
  AstSettings settings;
  settings.num_mels = static_cast<uint32_t>(config.Uint("num_mel_bins", 128, 1, 512));
  settings.frames = static_cast<uint32_t>(config.Uint("max_length", 1024, 1, 1 << 16));
  settings.normalized = config.Flag("do_normalize", true);
  // As Python computes them: in f64, then rounded to the features' f32.
  settings.mean = static_cast<float>(config.Real("mean", -4.2677393));
  settings.divisor = static_cast<float>(config.Real("std", 4.5689974) * 2);
  config.Inert({"feature_size", "padding_value"});  // frames are filled with zeros, whatever the file has
  config.NotNull({"num_mel_bins", "max_length", "do_normalize", "mean", "std"});
  ReadCommonSpeechKeys(config, kSpeechRate);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (settings.divisor == 0) return config.Error("std", "must not be 0, which features are divided by");
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(ReadPatches(source.checkpoint, settings));
  return std::make_unique<Ast>(settings, source.limits);
}

}  // namespace evenkeel::preprocess
