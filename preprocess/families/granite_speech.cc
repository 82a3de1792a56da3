// Granite Speech: log-mel features of frames centred on every 10 ms, not below a bound under the clip's loudest, two
// frames in a row. The placeholders are the queries of its projector, some for each window of rows.
//
// The rules are those of transformers' models/granite_speech/feature_extraction_granite_speech.py and of
// torchaudio.transforms.MelSpectrogram, for a clip alone. The extractor computes in f32, through torch alone; this file
// in f64 with torch's window and filters, which are in f32.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <vector>

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
constexpr double kFloor = 1e-10;  // the smallest power
constexpr double kRange = 8;      // decades below the loudest value

struct GraniteSettings {
  uint32_t num_mels = 80;
  uint32_t window = 15;       // rows that the projector takes at once
  uint32_t downsampling = 5;  // by how much it shortens them

  uint32_t queries() const { return window / downsampling; }  // of a window
};

// torch.hann_window(400), whose steps are rounded to f32: a cosine near that of an exact rotation.
std::array<double, kWindow> HannWindow() {
  std::array<double, kWindow> window;
  const auto step = static_cast<float>(2 * std::numbers::pi / kWindow);
  for (uint32_t i = 0; i < kWindow; ++i) {
    const Rotation exact = RotationOf(i, kWindow);
    const double off = double{static_cast<float>(i) * step} - 2 * std::numbers::pi * i / kWindow;
    const auto cosine = static_cast<float>(exact.cos - off * exact.sin);
    window[i] = double{cosine * -0.5f + 0.5f};
  }
  return window;
}

// torchaudio.functional.melscale_fbanks(mel_scale="htk", norm=None) from 0 Hz to half the rate, each step of which is
// rounded to f32.
std::vector<MelTriangle> TorchaudioBands(uint32_t num_mels) {
  constexpr float kScale = 2595, kCorner = 700;
  constexpr uint32_t kBins = kPoints / 2 + 1;
  const auto top = static_cast<float>(double{kScale} * ExactLog10(1 + kSpeechRate / 2 / double{kCorner}));
  const uint32_t last = num_mels + 1;
  const float step = top / static_cast<float>(last);
  std::vector<float> edges(num_mels + 2);
  for (uint32_t i = 0; i <= last; ++i) {
    const float mel = i < edges.size() / 2 ? step * static_cast<float>(i)
                                           : std::fma(-step, static_cast<float>(last - i), top);
    const auto power = static_cast<float>(ExactExp(double{mel / kScale} * std::numbers::ln10));
    edges[i] = kCorner * (power - 1);
  }
  std::vector<MelTriangle> bands(num_mels);
  for (uint32_t m = 0; m < num_mels; ++m) {
    for (uint32_t bin = 0; bin < kBins; ++bin) {
      const float hertz = static_cast<float>(bin) * (static_cast<float>(kSpeechRate) / kPoints);
      const float up = (hertz - edges[m]) / (edges[m + 1] - edges[m]);
      const float down = (edges[m + 2] - hertz) / (edges[m + 2] - edges[m + 1]);
      const float weight = std::max(0.0f, std::min(up, down));
      if (weight == 0) continue;
      if (bands[m].weights.empty()) bands[m].first = bin;
      bands[m].weights.resize(bin - bands[m].first + 1);
      bands[m].weights.back() = double{weight};
    }
  }
  return bands;
}

class GraniteSpeech final : public SpeechEncoder {
 public:
  GraniteSpeech(const GraniteSettings& settings, const Limits& limits)
      // The transform reflects half a frame of kPoints samples at either end.
      : SpeechEncoder({{"input_features", DType::kF32, true, {uint64_t{2} * settings.num_mels}, nullptr},
                       {"audio_embed_sizes", DType::kI64, false, {}, nullptr}},
                      limits, {.least_samples = kPoints / 2 + 1}),
        settings_(settings),
        window_(HannWindow()),
        spectrum_(kPoints, TorchaudioBands(settings.num_mels), BinValue::kExactPower) {}

  std::vector<MediumStyle> styles() const override {
    return {{.medium = Medium::kAudio, .placeholder = "<|audio|>"}};
  }

 protected:
  ItemLengths LengthsOf(uint64_t samples) const override {
    const auto rows = static_cast<uint32_t>((samples / kHop + 1) / 2);
    const uint64_t windows = (uint64_t{rows} + settings_.window - 1) / settings_.window;
    return {rows, rows, static_cast<uint32_t>(windows * settings_.queries())};
  }

  void WriteMask(uint64_t samples, std::span<int64_t> sizes) const override {
    sizes[0] = LengthsOf(samples).output_rows;
  }

  // An odd last frame counts for the loudest value, but has no row.
  bool Features(std::span<const float> samples, std::span<float> out) const override {
    const size_t num_mels = settings_.num_mels, frames = samples.size() / kHop + 1;
    static thread_local ScratchBytes memory;
    const std::span<double> values = memory.GetAs<double>(frames * num_mels);
    const FrameWindow window{.frames = frames, .begin = (kPoints - kWindow) / 2, .length = kWindow};
    const auto sample = [&](size_t frame, uint32_t i) {
      return double{SampleOf(samples, frame, i)} * window_[i];
    };
    const auto take = [&](size_t frame, size_t mel, double power) {
      values[frame * num_mels + mel] = ExactLog10(std::max(power, kFloor));
    };
    const bool finite = ForEachPower(spectrum_, window, sample, take);
    const double least = *std::max_element(values.begin(), values.end()) - kRange;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(std::max(values[i], least) / 4 + 1);
    }
    return finite;
  }

 private:
  // Sample `i` of a frame's window, which lies around the frame's centre. The clip is reflected at its ends.
  static float SampleOf(std::span<const float> samples, size_t frame, uint32_t i) {
    const auto count = static_cast<int64_t>(samples.size());
    int64_t at = static_cast<int64_t>(frame * kHop + i) - kWindow / 2;
    if (at < 0) at = -at;
    if (at >= count) at = 2 * (count - 1) - at;
    return samples[static_cast<size_t>(at)];
  }

  const GraniteSettings settings_;
  const std::array<double, kWindow> window_;
  const MelSpectrum spectrum_;
};

}  // namespace

MadeFamily MakeGraniteSpeech(ConfigFile config, const FamilySource& source) {
  constexpr uint64_t kMost = 1 << 10;
  GraniteSettings settings;
  settings.num_mels = static_cast<uint32_t>(config.Uint("n_mels", 80, 1, 512));
  settings.window = static_cast<uint32_t>(config.Uint("projector_window_size", 15, 1, kMost));
  settings.downsampling = static_cast<uint32_t>(config.Uint("projector_downsample_rate", 5, 1, kMost));
  config.Pin("hop_length", double{kHop});
  config.Pin("n_fft", double{kPoints});
  config.Pin("win_length", double{kWindow});
  // Its class takes the numbers of mels and samples from the keys above, and only writes these two.
  config.Inert({"melspec_kwargs", "feature_size", "padding_value"});
  config.NotNull({"n_mels", "hop_length", "n_fft", "win_length", "projector_window_size",
                  "projector_downsample_rate", "sampling_rate"});
  ReadCommonSpeechKeys(config, kSpeechRate);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (settings.queries() == 0) {
    return config.Error("projector_window_size",
                        "is below projector_downsample_rate, so that clips have no tokens");
  }
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint, {{"audio_token", "<|audio|>"}}));
  return std::make_unique<GraniteSpeech>(settings, source.limits);
}

}  // namespace evenkeel::preprocess
