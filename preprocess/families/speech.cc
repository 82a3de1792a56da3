// The audio families' media: measures clips, decodes them and computes log-mel features, padded, cut into
// windows or as they are.
#include "preprocess/families/speech.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/audio/log_mel.h"
#include "preprocess/families/families.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kUsualChunk = LogMel::kSamples / kSpeechRate;  // seconds
constexpr uint32_t kMinUnpadded = LogMel::kWindow / 2 + 1;        // samples; the transform reflects the ends

class Speech final : public MediaFamily {
 public:
  Speech(SpeechSettings settings, const Limits& limits)
      : settings_(std::move(settings)), limits_(limits), log_mel_(settings_.num_mels) {
    const uint64_t num_mels = settings_.num_mels;
    if (padded()) {
      const uint64_t frames = window_frames();
      fields_ = {FieldSpec{"input_features", DType::kF32, windows(), {num_mels, frames}, nullptr}};
      if (!settings_.mask.empty()) {
        fields_.push_back({settings_.mask, DType::kI64, windows(), {frames}, nullptr});
      }
    } else {
      fields_ = {FieldSpec{"input_features", DType::kF32, true, {num_mels}, nullptr},
                 FieldSpec{"audio_feature_lengths", DType::kI64, false, {}, nullptr}};
    }
  }

  std::vector<MediumStyle> styles() const override {
    if (!settings_.style) return {};
    return {*settings_.style};
  }
  const std::vector<FieldSpec>& fields(Medium) const override { return fields_; }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    const uint32_t frames = FramesOf(SamplesOf(facts));
    const uint32_t tokens = frames == 0 ? 0 : settings_.tokens(frames);
    if (tokens == 0 || facts.num_samples == 0) {
      return absl::InvalidArgumentError(absl::StrCat("clip of ", facts.num_samples, " samples at ",
                                                     facts.sample_rate, " Hz is too short for one token"));
    }
    if (windows()) {
      const uint32_t count = WindowsOf(facts);
      return ItemLengths{settings_.encodes_padding ? count * window_frames() : frames, count, tokens};
    }
    const uint32_t rows = padded() ? window_frames() : frames;
    return ItemLengths{settings_.encodes_padding ? rows : frames, rows, tokens};
  }

  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
    EVENKEEL_ASSIGN_OR_RETURN(const DecodedAudio audio,
                              DecodePlanned(request, SamplesOf(request.facts), limits_));
    std::span<float> features(reinterpret_cast<float*>(field_bytes[0].data()),
                              field_bytes[0].size() / sizeof(float));
    if (!Features(audio.samples, features))
      return absl::DataLossError("audio contains NaN or infinite samples");
    return absl::OkStatus();
  }

  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(request.facts));
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("got a clip of ", lengths.output_rows, " tokens, the plan has ",
                                              request.planned.output_rows));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
    if (fields_.size() < 2) return absl::OkStatus();
    std::span<int64_t> counts(reinterpret_cast<int64_t*>(field_bytes[1].data()),
                              field_bytes[1].size() / sizeof(int64_t));
    const uint32_t frames = FramesOf(SamplesOf(request.facts));
    if (padded()) {
      for (uint32_t i = 0; i < counts.size(); ++i) counts[i] = i < frames ? 1 : 0;
    } else {
      counts[0] = frames;
    }
    return absl::OkStatus();
  }

  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.medium = Medium::kAudio;
    facts.sample_rate = kSpeechRate;
    facts.channels = 1;
    uint32_t frames = 3;  // enough for one token in most families
    while (settings_.tokens(frames) == 0) ++frames;
    facts.num_samples = uint64_t{frames} * LogMel::kHop;
    facts.duration_us = facts.num_samples * 1000000 / kSpeechRate;
    return facts;
  }

 private:
  bool padded() const { return settings_.shape != ClipShape::kUnpadded; }
  bool windows() const {
    return settings_.shape == ClipShape::kWindows || settings_.shape == ClipShape::kWhole;
  }
  uint32_t window_frames() const { return settings_.padded_samples / LogMel::kHop; }

  // The number of samples at 16 kHz that are used of a clip.
  uint64_t SamplesOf(const MediaFacts& facts) const {
    const uint64_t samples = SpeechSamples(facts);
    if (settings_.shape == ClipShape::kPadded) return std::min<uint64_t>(samples, settings_.padded_samples);
    if (settings_.max_windows == 0) return samples;
    return std::min(samples, uint64_t{settings_.max_windows} * settings_.padded_samples);
  }
  uint32_t WindowsOf(const MediaFacts& facts) const {
    return static_cast<uint32_t>((SamplesOf(facts) + settings_.padded_samples - 1) /
                                 settings_.padded_samples);
  }

  // Frames that the mask marks. For an unpadded clip the extractor drops an incomplete frame.
  uint32_t FramesOf(uint64_t samples) const {
    if (padded()) {
      return MaskedFrames(samples, static_cast<uint32_t>(std::min<uint64_t>(
                                       std::numeric_limits<uint32_t>::max(),
                                       std::max<uint64_t>(samples, settings_.padded_samples))));
    }
    if (samples != 0) samples = std::max<uint64_t>(samples, settings_.min_samples);
    if (samples < kMinUnpadded) return 0;
    return static_cast<uint32_t>(std::min<uint64_t>(samples, std::numeric_limits<uint32_t>::max()) /
                                 LogMel::kHop);
  }

  bool Features(std::span<const float> samples, std::span<float> out) const {
    if (settings_.shape == ClipShape::kPadded) {
      return log_mel_.Compute(samples, out, settings_.padded_samples);
    }
    if (windows()) return WindowFeatures(samples, out);
    const size_t num_mels = settings_.num_mels;
    const size_t frames = out.size() / num_mels;
    static thread_local ScratchBytes memory;
    const std::span<float> by_mel = memory.GetAs<float>(out.size());
    const auto filled = static_cast<uint32_t>(std::max<size_t>(samples.size(), settings_.min_samples));
    if (!log_mel_.Compute(samples, by_mel, filled)) return false;
    for (size_t frame = 0; frame < frames; ++frame) {
      for (size_t mel = 0; mel < num_mels; ++mel) out[frame * num_mels + mel] = by_mel[mel * frames + frame];
    }
    return true;
  }

  // Features per window, or of the whole clip and cut afterwards. The results differ, because values are
  // clamped relative to the loudest value of what is computed at once.
  bool WindowFeatures(std::span<const float> samples, std::span<float> out) const {
    const size_t window = settings_.padded_samples, frames = window_frames();
    const size_t row = settings_.num_mels * frames, count = out.size() / row;
    if (settings_.shape == ClipShape::kWindows) {
      for (size_t i = 0; i < count; ++i) {
        const std::span<const float> rest = samples.subspan(i * window);
        const std::span<const float> own = rest.first(std::min(rest.size(), window));
        if (!log_mel_.Compute(own, out.subspan(i * row, row), settings_.padded_samples)) return false;
      }
      return true;
    }
    static thread_local ScratchBytes memory;
    const std::span<float> by_mel = memory.GetAs<float>(out.size());
    if (!log_mel_.Compute(samples, by_mel, static_cast<uint32_t>(count * window))) return false;
    for (size_t i = 0; i < count; ++i) {
      for (size_t mel = 0; mel < settings_.num_mels; ++mel) {
        std::copy_n(&by_mel[(mel * count + i) * frames], frames, &out[i * row + mel * frames]);
      }
    }
    return true;
  }

  const SpeechSettings settings_;
  const Limits limits_;
  const LogMel log_mel_;
  std::vector<FieldSpec> fields_;
};

}  // namespace

uint32_t MaskedFrames(uint64_t num_samples, uint32_t padded_samples) {
  const uint64_t samples = std::min<uint64_t>(num_samples, padded_samples);
  return static_cast<uint32_t>((samples + LogMel::kHop - 1) / LogMel::kHop);
}

absl::StatusOr<DecodedAudio> DecodePlanned(const ItemRequest& request, uint64_t planned, const Limits& limits,
                                           uint32_t rate) {
  EVENKEEL_ASSIGN_OR_RETURN(const DecodedAudio audio, DecodeSpeech(request.suffix, request.bytes, limits,
                                                                   request.facts, planned, rate));
  if (audio.samples.size() != planned) {
    return absl::DataLossError(absl::StrCat("got a clip of ", audio.samples.size(), " samples at ", rate,
                                            " Hz, the plan has ", planned));
  }
  if (request.notes != nullptr) {
    request.notes->samples_filled += audio.filled;
    request.notes->samples_trimmed += audio.trimmed;
  }
  return audio;
}

absl::StatusOr<SpeechSettings> ReadSpeechSettings(ConfigFile& config) {
  SpeechSettings out;
  out.num_mels = static_cast<uint32_t>(config.Uint("feature_size", 80, 1, 512));
  const auto chunk = static_cast<uint32_t>(config.Uint("chunk_length", kUsualChunk, 1, 3600));
  out.padded_samples = chunk * kSpeechRate;
  config.Pin("hop_length", double{LogMel::kHop});
  config.Pin("n_fft", double{LogMel::kWindow});
  config.Pin("n_samples", static_cast<double>(out.padded_samples));
  const uint32_t frames = out.padded_samples / LogMel::kHop;
  config.Pin("nb_max_frames", static_cast<double>(frames));
  config.Pin("sampling_rate", double{kSpeechRate});
  config.Pin("padding_side", std::string_view("right"));
  config.Pin("padding_value", 0.0);
  config.Pin("dither", 0.0);
  // mel_filters: older checkpoints contain the matrix, which the extractor computes in any case.
  config.Inert({"feature_extractor_type", "processor_class", "return_attention_mask", "mel_filters",
                "auto_map", "return_tensors", "_name_or_path", "transformers_version"});
  if (config.Has("image_processor_type")) {
    IgnoreImageProcessor(config);
  } else {
    config.Pin("do_normalize", false);
  }
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  return out;
}

std::unique_ptr<MediaFamily> MakeSpeech(SpeechSettings settings, const Limits& limits) {
  return std::make_unique<Speech>(std::move(settings), limits);
}

}  // namespace evenkeel::preprocess
