#include "preprocess/whisper.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio.h"
#include "preprocess/families.h"
#include "preprocess/log_mel.h"

namespace evenkeel {

uint32_t MaskedFrames(uint64_t num_samples) {
  uint64_t samples = std::min<uint64_t>(num_samples, LogMel::kSamples);
  return static_cast<uint32_t>((samples + LogMel::kHop - 1) / LogMel::kHop);
}

uint32_t Qwen2AudioTokens(uint32_t frames) {
  auto floor_half = [](int64_t n) { return n >= 0 ? n / 2 : -((1 - n) / 2); };
  int64_t convolved = floor_half(int64_t{frames} - 1) + 1;
  int64_t pooled = floor_half(convolved - 2) + 1;
  return static_cast<uint32_t>(std::max<int64_t>(pooled, 0));
}

namespace {

// Whisper's encoder halves its 3000 frames, whatever the clip's length.
constexpr uint32_t kWhisperRows = LogMel::kFrames / 2;

class Whisper final : public MediaFamily {
 public:
  Whisper(uint32_t num_mels, std::string processor_class, bool qwen2_audio, const Limits& limits)
      : num_mels_(num_mels),
        processor_class_(std::move(processor_class)),
        qwen2_audio_(qwen2_audio),
        limits_(limits),
        log_mel_(num_mels) {
    fields_ = {FieldSpec{"input_features", DType::kF32, false, {num_mels, LogMel::kFrames}, nullptr},
               FieldSpec{"feature_attention_mask", DType::kI64, false, {LogMel::kFrames}, nullptr}};
  }

  std::vector<MediumStyle> styles() const override {
    if (!qwen2_audio_) return {};
    return {{Medium::kAudio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>", /*mrope=*/false}};
  }
  const std::vector<FieldSpec>& fields(Medium) const override { return fields_; }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    uint32_t rows = qwen2_audio_ ? Qwen2AudioTokens(MaskedFrames(SpeechSamples(facts))) : kWhisperRows;
    if (rows == 0 || facts.num_samples == 0) {
      return absl::InvalidArgumentError(absl::StrCat("clip of ", facts.num_samples, " samples at ",
                                                     facts.sample_rate, " Hz is too short for a token"));
    }
    return ItemLengths{LogMel::kFrames, LogMel::kFrames, rows};
  }

  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(Prepare(request, field_bytes));
    EVENKEEL_ASSIGN_OR_RETURN(DecodedAudio audio, DecodeSpeech(request.suffix, request.bytes, limits_,
                                                               request.facts, LogMel::kSamples));
    if (MaskedFrames(audio.samples.size()) != MaskedFrames(SpeechSamples(request.facts))) {
      return absl::DataLossError(absl::StrCat("clip of ", audio.samples.size(),
                                              " samples at 16 kHz where the plan says ",
                                              SpeechSamples(request.facts)));
    }
    if (request.notes != nullptr) {
      request.notes->samples_filled += audio.filled;
      request.notes->samples_trimmed += audio.trimmed;
    }
    std::span<float> features(reinterpret_cast<float*>(field_bytes[0].data()),
                              field_bytes[0].size() / sizeof(float));
    if (!log_mel_.Compute(audio.samples, features))
      return absl::DataLossError("audio whose samples are not finite");
    return absl::OkStatus();
  }

  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(Prepare(request, field_bytes));
    std::memset(field_bytes[0].data(), 0, field_bytes[0].size());
    return absl::OkStatus();
  }

  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.medium = Medium::kAudio;
    facts.sample_rate = kSpeechRate;
    facts.channels = 1;
    facts.num_samples = 3 * LogMel::kHop;  // the least of which Qwen2-Audio makes a token
    facts.duration_us = facts.num_samples * 1000000 / kSpeechRate;
    return facts;
  }

  void AddTo(CanonicalText& text) const override {
    text.Add("audio.family", std::string_view("whisper"));
    text.Add("audio.processor_class", processor_class_);
    text.Add("audio.feature_size", uint64_t{num_mels_});
    text.Add("audio.resampler", std::string_view("soxr_hq"));
  }

 private:
  // Checks the planned lengths and the spans, writes the mask.
  absl::Status Prepare(const ItemRequest& request, std::span<const std::span<std::byte>> field_bytes) const {
    EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(request.facts));
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("clip of ", lengths.output_rows, " tokens where the plan says ",
                                              request.planned.output_rows));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
    std::span<int64_t> mask(reinterpret_cast<int64_t*>(field_bytes[1].data()), LogMel::kFrames);
    uint32_t frames = MaskedFrames(SpeechSamples(request.facts));
    for (uint32_t i = 0; i < LogMel::kFrames; ++i) mask[i] = i < frames ? 1 : 0;
    return absl::OkStatus();
  }

  uint32_t num_mels_;
  std::string processor_class_;
  bool qwen2_audio_;
  Limits limits_;
  LogMel log_mel_;
  std::vector<FieldSpec> fields_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MediaFamily>> MakeWhisper(ConfigFile config, const ProcessorSpec&,
                                                         const Limits& limits) {
  uint64_t num_mels = config.Uint("feature_size", 80, 1, 512);
  std::string processor_class = config.Text("processor_class", "WhisperProcessor");
  config.Pin("chunk_length", double{LogMel::kSamples / kSpeechRate});
  config.Pin("hop_length", double{LogMel::kHop});
  config.Pin("n_fft", double{LogMel::kWindow});
  config.Pin("n_samples", double{LogMel::kSamples});
  config.Pin("nb_max_frames", double{LogMel::kFrames});
  config.Pin("sampling_rate", double{kSpeechRate});
  config.Pin("padding_side", std::string_view("right"));
  config.Pin("padding_value", 0.0);
  config.Pin("dither", 0.0);
  config.Pin("do_normalize", false);
  // mel_filters: older checkpoints carry the matrix that the extractor computes anew.
  config.Inert({"feature_extractor_type", "image_processor_type", "return_attention_mask", "mel_filters",
                "auto_map", "return_tensors", "_name_or_path", "transformers_version"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  bool qwen2_audio = processor_class == "Qwen2AudioProcessor";
  if (!qwen2_audio && processor_class != "WhisperProcessor") {
    return config.Error("processor_class", absl::StrCat("'", processor_class,
                                                        "' is not implemented; WhisperProcessor and "
                                                        "Qwen2AudioProcessor are"));
  }
  return std::make_unique<Whisper>(static_cast<uint32_t>(num_mels), processor_class, qwen2_audio, limits);
}

}  // namespace evenkeel
