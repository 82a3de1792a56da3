// Parakeet: a pre-emphasis of the whole clip, log-mel features of frames centred on every 10 ms, each mel with a mean of
// zero and a variance of one. An output row is one of the encoder's, after the convolutions that halve the frames.
//
// The rules are those of transformers' models/parakeet/feature_extraction_parakeet.py, for a clip alone: the rows are those
// that the model's mask keeps. The extractor computes in f32, through torch alone; this file
// in f64 after the pre-emphasis.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "core/status.h"
#include "preprocess/audio/frame_powers.h"
#include "preprocess/audio/mel_spectrum.h"
#include "preprocess/families/families.h"
#include "preprocess/families/speech_encoder.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kHop = 160;
constexpr uint32_t kWindow = 400;
constexpr uint32_t kPoints = 512;
constexpr float kEmphasis = 0.97f;
constexpr double kGuard = 1.0 / (1 << 24);  // added to powers
constexpr double kEpsilon = 1e-5;           // added to deviations

struct ParakeetSettings {
  uint32_t num_mels = 80;
  uint32_t layers = 3;  // convolutions that shorten the clip
  uint32_t stride = 2;
};

class Parakeet final : public SpeechEncoder {
 public:
  Parakeet(const ParakeetSettings& settings, const Limits& limits)
      // Of one frame alone there is no variance.
      : SpeechEncoder({{"input_features", DType::kF32, true, {settings.num_mels}, nullptr}}, limits,
                      {.least_samples = 2 * kHop}),
        settings_(settings),
        spectrum_(kPoints, SlaneyTriangles(settings.num_mels, kPoints, kSpeechRate, kSpeechRate / 2.0),
                  BinValue::kExactPower) {
    for (uint32_t i = 0; i < kWindow; ++i) {
      window_[i] = 0.5 - 0.5 * RotationOf(i, kWindow - 1).cos;
    }
  }

 protected:
  ItemLengths LengthsOf(uint64_t samples) const override {
    const uint64_t frames = samples / kHop;
    uint64_t rows = frames;
    for (uint32_t layer = 0; layer < settings_.layers; ++layer) {
      rows = (rows - 1) / settings_.stride + 1;  // half of the odd kernel is padding at either end
    }
    return {static_cast<uint32_t>(frames), static_cast<uint32_t>(frames), static_cast<uint32_t>(rows)};
  }

  bool Features(std::span<const float> samples, std::span<float> out) const override {
    const size_t num_mels = settings_.num_mels, frames = out.size() / num_mels;
    static thread_local ScratchBytes memory;
    const std::span<double> by_mel = memory.GetAs<double>(out.size());
    const FrameWindow window{.frames = frames, .begin = (kPoints - kWindow) / 2, .length = kWindow};
    const auto sample = [&](size_t frame, uint32_t i) {
      return double{Emphasised(samples, static_cast<int64_t>(frame * kHop + i) - kWindow / 2)} * window_[i];
    };
    const auto take = [&](size_t frame, size_t mel, double power) {
      by_mel[mel * frames + frame] = ExactLog(power + kGuard);
    };
    const bool finite = ForEachPower(spectrum_, window, sample, take);
    for (size_t mel = 0; mel < num_mels; ++mel) {
      const std::span<double> values = by_mel.subspan(mel * frames, frames);
      Normalise(values);
      for (size_t i = 0; i < frames; ++i) out[i * num_mels + mel] = static_cast<float>(values[i]);
    }
    return finite;
  }

 private:
  // In f32, as the extractor's. Zero outside the clip.
  static float Emphasised(std::span<const float> samples, int64_t position) {
    if (position < 0 || static_cast<uint64_t>(position) >= samples.size()) return 0;
    return position == 0 ? samples[0] : samples[position] - kEmphasis * samples[position - 1];
  }

  static void Normalise(std::span<double> values) {
    const auto count = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (const double value : values) sum += value;
    const double mean = sum / count;
    for (const double value : values) squares += (value - mean) * (value - mean);
    const double deviation = std::sqrt(squares / (count - 1)) + kEpsilon;
    for (double& value : values) value = (value - mean) / deviation;
  }

  const ParakeetSettings settings_;
  const MelSpectrum spectrum_;
  std::array<double, kWindow> window_;
};

// The convolutions of config.json, whose encoder_config has them, or the file itself if it is the encoder's.
absl::Status ReadConvolutions(const CheckpointFolder& checkpoint, ParakeetSettings& out) {
  constexpr uint64_t kMost = 1 << 10;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  std::optional<ConfigFile> nested = model.Member("encoder_config");
  ConfigFile& encoder = nested ? *nested : model;
  const uint64_t factor = encoder.Uint("subsampling_factor", 8, 1, kMost);
  out.layers = 0;
  while (factor >> (out.layers + 1) != 0) ++out.layers;  // log2, rounded down
  const uint64_t kernel = encoder.Uint("subsampling_conv_kernel_size", 3, 1, kMost);
  out.stride = static_cast<uint32_t>(encoder.Uint("subsampling_conv_stride", 2, 1, kMost));
  if (nested) EVENKEEL_RETURN_IF_ERROR(nested->Finish());
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  if (kernel % 2 == 0) return encoder.Error("subsampling_conv_kernel_size", "only odd sizes are implemented");
  return absl::OkStatus();
}

}  // namespace

MadeFamily MakeParakeet(ConfigFile config, const FamilySource& source) {
  ParakeetSettings settings;
  settings.num_mels = static_cast<uint32_t>(config.Uint("feature_size", 80, 1, 512));
  config.Pin("hop_length", double{kHop});
  config.Pin("n_fft", double{kPoints});
  config.Pin("win_length", double{kWindow});
  config.Pin("preemphasis", 0.97);
  config.Inert({"padding_value", "do_normalize"});
  config.NotNull({"feature_size", "preemphasis"});
  ReadCommonSpeechKeys(config, kSpeechRate);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  outer.Inert({"blank_token", "decoder_type"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_RETURN_IF_ERROR(ReadConvolutions(source.checkpoint, settings));
  return std::make_unique<Parakeet>(settings, source.limits);
}

}  // namespace evenkeel::preprocess
