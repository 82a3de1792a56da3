// The speech of Gemma 3n and Gemma 4: logarithms of the mel magnitudes of the frames that a call's mask keeps. Clips of
// Gemma 3n have a fixed number of tokens, up to which its model fills them; those of Gemma 4 one for every fourth frame.
//
// The rules are those of transformers' models/{gemma3n,gemma4}/{feature_extraction,processing}_*.py, for a clip alone: a call
// cuts it to 30 seconds and pads it to a multiple of 128 samples. The extractors compute through NumPy: frames in f32,
// their transforms in f64, bins and magnitudes in f32, and the rest in f64. So does this file.
#include "preprocess/families/gemma_speech.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio/frame_powers.h"
#include "preprocess/audio/mel_spectrum.h"
#include "preprocess/families/families.h"
#include "preprocess/families/speech_encoder.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxSamples = 30 * kSpeechRate;  // max_length of a call
constexpr uint64_t kMultiple = 128;                 // pad_to_multiple_of
constexpr uint64_t kFramesOfToken = 4;  // of Gemma 4: two convolutions, each of which halves the frames

// The defaults of an extractor's class.
struct GemmaSpeechClass {
  std::string_view processor_class;
  double frame_ms, least_hertz, most_hertz, emphasis;
  bool doubled;  // the points of the transform
  double floor;
};
constexpr GemmaSpeechClass kGemma3n = {"Gemma3nProcessor", 32, 125, 7600, 0.97, true, 1e-5};
constexpr GemmaSpeechClass kGemma4 = {"Gemma4Processor", 20, 0, 8000, 0, false, 1e-3};

// Lengths in samples at 16 kHz.
struct GemmaSpeechSettings {
  uint32_t num_mels = 128;
  uint32_t frame = 0;
  uint32_t hop = 160;
  uint32_t points = 0;  // of the transform
  uint32_t lead = 0;    // zeros before the clip
  double least_hertz = 0, most_hertz = 0;
  double emphasis = 0;           // 0: none
  bool emphasis_as_htk = false;  // nothing stands before a frame's first sample; else what does in the clip
  float gain = 1;
  double floor = 0;           // of magnitudes
  bool adds_floor = false;    // to magnitudes; else they are at least as large
  bool whole_frames = false;  // the mask keeps frames that end in the clip; else those that begin in it
  uint32_t tokens = 0;        // of every clip; 0: one for every fourth frame
  std::vector<double> mean, deviation;  // of each mel; empty: none
  MediumStyle style;
  std::vector<float> window;
};

// The shortest clip with a frame. An extractor takes one sample more than a frame has.
uint32_t LeastSamples(const GemmaSpeechSettings& of) {
  if (of.whole_frames) return of.frame - of.lead + 1;
  return static_cast<uint32_t>(of.frame / kMultiple * kMultiple) + 1;
}

class GemmaSpeech final : public SpeechEncoder {
 public:
  GemmaSpeech(GemmaSpeechSettings settings, const Limits& limits)
      : SpeechEncoder({{"input_features", DType::kF32, true, {settings.num_mels}, nullptr},
                       {"audio_feature_lengths", DType::kI64, false, {}, nullptr}},
                      limits, {.least_samples = LeastSamples(settings)}),
        settings_(std::move(settings)),
        spectrum_(settings_.points,
                  HtkBands({.num_mels = settings_.num_mels,
                            .points = settings_.points,
                            .rate = kSpeechRate,
                            .least_hertz = settings_.least_hertz,
                            .most_hertz = settings_.most_hertz}),
                  BinValue::kMagnitude) {}

  std::vector<MediumStyle> styles() const override { return {settings_.style}; }

 protected:
  uint64_t UsedSamples(uint64_t samples) const override { return std::min(samples, kMaxSamples); }

  ItemLengths LengthsOf(uint64_t samples) const override {
    const auto frames = static_cast<uint32_t>(FramesOf(samples));
    const auto fourths = static_cast<uint32_t>((frames + kFramesOfToken - 1) / kFramesOfToken);
    return {frames, frames, settings_.tokens != 0 ? settings_.tokens : fourths};
  }

  void WriteMask(uint64_t samples, std::span<int64_t> lengths) const override {
    lengths[0] = static_cast<int64_t>(FramesOf(samples));
  }

  bool Features(std::span<const float> samples, std::span<float> out) const override {
    const size_t num_mels = settings_.num_mels;
    const auto sample = [&](size_t frame, uint32_t i) {
      return double{Prepared(samples, static_cast<int64_t>(frame * settings_.hop) - settings_.lead, i) *
                    settings_.window[i]};
    };
    const auto take = [&](size_t frame, size_t mel, double magnitude) {
      out[frame * num_mels + mel] = Value(mel, magnitude);
    };
    const FrameWindow window{.frames = out.size() / num_mels, .length = settings_.frame};
    return ForEachPower(spectrum_, window, sample, take);
  }

 private:
  uint64_t FramesOf(uint64_t samples) const {
    const uint64_t used = std::min(samples, kMaxSamples), hop = settings_.hop, frame = settings_.frame;
    if (settings_.whole_frames) return (used + settings_.lead - frame + hop - 1) / hop;
    const uint64_t padded = (used + kMultiple - 1) / kMultiple * kMultiple;
    return std::min((used + hop - 1) / hop, (padded - frame - 1) / hop + 1);
  }

  // In f32, as the extractors'. `begin`: of the frame, in the clip.
  float Prepared(std::span<const float> samples, int64_t begin, uint32_t i) const {
    const auto at = [&](int64_t position) {
      const bool inside = position >= 0 && static_cast<uint64_t>(position) < samples.size();
      return inside ? samples[static_cast<size_t>(position)] * settings_.gain : 0.0f;
    };
    const int64_t position = begin + i;
    if (settings_.emphasis == 0) return at(position);
    const auto by = static_cast<float>(settings_.emphasis);
    if (!settings_.emphasis_as_htk) return at(position + 1) - by * at(position);
    if (i == 0) return at(position) * static_cast<float>(1 - settings_.emphasis);
    return at(position) - by * at(position - 1);
  }

  float Value(size_t mel, double magnitude) const {
    const double floor = settings_.floor;
    double value = ExactLog(settings_.adds_floor ? magnitude + floor : std::max(magnitude, floor));
    if (!settings_.mean.empty()) value -= settings_.mean[mel];
    if (!settings_.deviation.empty()) value /= settings_.deviation[mel];
    return static_cast<float>(value);
  }

  const GemmaSpeechSettings settings_;
  const MelSpectrum spectrum_;
};

// NumPy's cosine of f32 on processors with fused multiply-adds (loops_trigonometric.dispatch): a reduction to an eighth of a
// turn and a polynomial, up to 1.5 units in the last place off, as the extractor's window is. std::fma is exact on every
// CPU. `x`: from 0 to two pi.
float CosineOfNumPy(float x) {
  constexpr float kWhole = 0x1.8p23f;  // adding it rounds to whole numbers
  constexpr float kCosine[] = {0x1.98e616p-16f, -0x1.6c06dcp-10f, 0x1.55553cp-5f, -0.5f, 1.0f};
  constexpr float kSine[] = {0x1.7d3bbcp-19f, -0x1.a06bbap-13f, 0x1.11119ap-7f, -0x1.555556p-3f, 0.0f};
  const float quarters = std::fma(x, 0x1.45f306p-1f, kWhole) - kWhole;
  float angle = x;
  for (const float part : {-0x1.921fb0p0f, -0x1.5110b4p-22f, -0x1.846988p-48f}) {
    angle = std::fma(quarters, part, angle);
  }
  const auto quarter = static_cast<uint32_t>(quarters);
  const bool is_odd = quarter % 2 == 1;
  float value = 0;
  for (const float coefficient : is_odd ? kSine : kCosine)
    value = std::fma(value, angle * angle, coefficient);
  if (is_odd) value = std::fma(value, angle, angle);
  return (quarter + 1) / 2 % 2 == 1 ? -value : value;
}

std::vector<float> HannOfF32(uint32_t length) {
  std::vector<float> window(length);
  for (uint32_t i = 0; i < length; ++i) {
    const float turn = static_cast<float>(2 * std::numbers::pi) * static_cast<float>(i);
    window[i] = 0.5f * (1 - CosineOfNumPy(turn / static_cast<float>(length)));
  }
  return window;
}

std::vector<float> HannOfF64(uint32_t length) {
  std::vector<float> window(length);
  for (uint32_t i = 0; i < length; ++i) window[i] = static_cast<float>(0.5 - 0.5 * RotationOf(i, length).cos);
  return window;
}

// Milliseconds as a number of samples; 0: not one that is implemented.
uint32_t SamplesOf(double milliseconds, uint32_t most) {
  const double samples = std::nearbyint(kSpeechRate * milliseconds / 1000);
  return samples >= 1 && samples <= most ? static_cast<uint32_t>(samples) : 0;
}

// Reads how long frames are, and what follows from it.
absl::Status ReadFrames(ConfigFile& config, const GemmaSpeechClass& usual, GemmaSpeechSettings& out) {
  const double frame_ms = config.Real("frame_length_ms", usual.frame_ms);
  const double hop_ms = config.Real("hop_length_ms", 10);
  const bool doubled = config.Flag("fft_overdrive", usual.doubled);
  const uint32_t most = MelSpectrum::kMaxPoints / (doubled ? 2 : 1);
  out.frame = SamplesOf(frame_ms, most);
  out.hop = SamplesOf(hop_ms, static_cast<uint32_t>(kMaxSamples));
  if (out.frame < 4) {
    return config.Error("frame_length_ms", absl::StrCat("is ", frame_ms, "; implemented are 4 to ", most,
                                                        " samples at ", kSpeechRate, " Hz"));
  }
  if (out.hop == 0) {
    return config.Error("hop_length_ms", absl::StrCat("is ", hop_ms, "; implemented are 1 to ", kMaxSamples,
                                                      " samples at ", kSpeechRate, " Hz"));
  }
  out.points = 1;
  while (out.points < out.frame) out.points *= 2;
  if (doubled) out.points *= 2;
  return absl::OkStatus();
}

absl::Status CheckValues(const ConfigFile& config, const GemmaSpeechSettings& of) {
  if (!(of.least_hertz >= 0 && of.least_hertz < of.most_hertz && of.most_hertz <= kSpeechRate / 2.0)) {
    return config.Error("max_frequency", "must be above min_frequency, both from 0 to 8000");
  }
  if (!(of.emphasis >= 0 && of.emphasis <= 1)) return config.Error("preemphasis", "must be from 0 to 1");
  if (!(of.floor >= 1e-30 && of.floor <= 1e30)) {
    return config.Error("mel_floor", "must be positive, since its logarithm is taken of silence");
  }
  for (const double deviation : of.deviation) {
    if (deviation == 0) return config.Error("per_bin_stddev", "has a zero");
  }
  return absl::OkStatus();
}

absl::StatusOr<GemmaSpeechSettings> ReadGemmaSpeech(ConfigFile& config, const GemmaSpeechClass& usual) {
  const std::string of = config.Choice("processor_class", "");
  if (!of.empty()) EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(of, {usual.processor_class}));
  GemmaSpeechSettings out;
  out.num_mels = static_cast<uint32_t>(config.Uint("feature_size", 128, 2, 512));
  out.least_hertz = config.Real("min_frequency", usual.least_hertz);
  out.most_hertz = config.Real("max_frequency", usual.most_hertz);
  out.emphasis = config.Real("preemphasis", usual.emphasis);
  out.emphasis_as_htk = config.Flag("preemphasis_htk_flavor", true);
  out.gain = static_cast<float>(config.Real("input_scale_factor", 1));
  out.floor = config.Real("mel_floor", usual.floor);
  out.mean = config.WrappedReals("per_bin_mean", out.num_mels);
  out.deviation = config.WrappedReals("per_bin_stddev", out.num_mels);
  EVENKEEL_RETURN_IF_ERROR(ReadFrames(config, usual, out));
  config.Pin("dither", 0.0);
  config.Pin("padding_value", 0.0);
  config.NotNull({"feature_size", "min_frequency", "max_frequency", "preemphasis", "input_scale_factor",
                  "mel_floor", "frame_length_ms", "hop_length_ms", "dither", "sampling_rate"});
  // Its class computes these from the milliseconds, whatever the file has.
  config.Inert({"frame_length", "hop_length", "fft_length"});
  // The image processors', where one file has both.
  config.Inert({"image_seq_length", "max_soft_tokens", "pooling_kernel_size"});
  ReadCommonSpeechKeys(config, kSpeechRate);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(CheckValues(config, out));
  return out;
}

// The model fills clips up to a number of its own, and fails if the processor has written another.
absl::Status CheckTokens(const FamilySource& source, const ConfigFile& outer, uint32_t tokens) {
  constexpr char kKey[] = "audio_soft_tokens_per_image";
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  const uint64_t of_model = model.Uint(kKey, tokens, 1, 1 << 16);
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  if (of_model == tokens) return absl::OkStatus();
  return outer.Error("audio_seq_length",
                     absl::StrCat("is ", tokens, ", but the model's config.json has ", of_model, " as ", kKey,
                                  ", by which its forward would fail; both must be the same"));
}

}  // namespace

void IgnoreGemmaSpeech(ConfigFile& config) {
  config.Inert({"frame_length", "frame_length_ms", "hop_length_ms", "fft_length", "fft_overdrive",
                "input_scale_factor", "max_frequency", "mel_floor", "min_frequency", "per_bin_mean",
                "per_bin_stddev", "preemphasis", "preemphasis_htk_flavor"});
}

MadeFamily MakeGemma3nSpeech(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(GemmaSpeechSettings settings, ReadGemmaSpeech(config, kGemma3n));
  settings.window = HannOfF32(settings.frame);
  settings.style = {.medium = Medium::kAudio,
                    .begin = "<start_of_audio>",
                    .placeholder = "<audio_soft_token>",
                    .end = "<end_of_audio>",
                    .before = "\n\n",
                    .after = "\n\n"};
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  settings.tokens = static_cast<uint32_t>(outer.Uint("audio_seq_length", 188, 1, 1 << 16));
  outer.NotNull({"audio_seq_length"});
  outer.Inert({"image_seq_length"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_RETURN_IF_ERROR(CheckTokens(source, outer, settings.tokens));
  return std::make_unique<GemmaSpeech>(std::move(settings), source.limits);
}

MadeFamily MakeGemma4Speech(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(GemmaSpeechSettings settings, ReadGemmaSpeech(config, kGemma4));
  settings.window = HannOfF64(settings.frame);
  settings.lead = settings.frame / 2;
  settings.adds_floor = settings.whole_frames = true;
  settings.style = {
      .medium = Medium::kAudio, .begin = "<|audio>", .placeholder = "<|audio|>", .end = "<audio|>"};
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  // A call counts tokens from the mask.
  outer.Inert({"image_seq_length", "audio_seq_length", "audio_ms_per_token"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  return std::make_unique<GemmaSpeech>(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
