// wav2vec 2.0, HuBERT, WavLM and others with their extractor: the samples themselves, with a mean of zero and a variance
// of one where the file asks for it. A row of the field is a sample; an output row is a frame of the model's convolutions.
//
// The rules are those of transformers' models/wav2vec2/feature_extraction_wav2vec2.py, for a clip alone, and of the
// models' _get_feat_extract_output_lengths.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/families/families.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/families/speech.h"

namespace evenkeel::preprocess {
namespace {

constexpr size_t kLayers = 7;
using Layers = std::array<uint32_t, kLayers>;

struct Wav2Vec2Settings {
  bool normalized = true;
  Layers kernels = {10, 3, 3, 3, 3, 2, 2};
  Layers strides = {5, 2, 2, 2, 2, 2, 2};
};

class Wav2Vec2 final : public MediaFamily {
 public:
  Wav2Vec2(const Wav2Vec2Settings& settings, const Limits& limits)
      : settings_(settings), limits_(limits), fields_{{"input_values", DType::kF32, true, {}, nullptr}} {}

  std::vector<MediumStyle> styles() const override { return {}; }
  const std::vector<FieldSpec>& fields(Medium) const override { return fields_; }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    const uint64_t samples = SpeechSamples(facts);
    const uint64_t frames = FramesOf(samples);
    if (frames == 0 || samples > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat("clip of ", facts.num_samples, " samples at ",
                                                     facts.sample_rate, " Hz is too ",
                                                     frames == 0 ? "short for one frame" : "long"));
    }
    return ItemLengths{static_cast<uint32_t>(frames), static_cast<uint32_t>(samples),
                       static_cast<uint32_t>(frames)};
  }

  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
    const uint64_t planned = request.planned.input_rows;
    EVENKEEL_ASSIGN_OR_RETURN(const DecodedAudio audio, DecodePlanned(request, planned, limits_));
    std::memcpy(field_bytes[0].data(), audio.samples.data(), field_bytes[0].size());
    const std::span<float> values(reinterpret_cast<float*>(field_bytes[0].data()), planned);
    for (const float value : values) {
      if (!std::isfinite(value)) return absl::DataLossError("audio contains NaN or infinite samples");
    }
    if (settings_.normalized) Normalise(values);
    return absl::OkStatus();
  }

  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, Measure(request.facts));
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("got a clip of ", lengths.output_rows, " frames, the plan has ",
                                              request.planned.output_rows));
    }
    return CheckFieldSizes(fields_, lengths, field_bytes);
  }

  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.medium = Medium::kAudio;
    facts.sample_rate = kSpeechRate;
    facts.channels = 1;
    facts.num_samples = 1;
    while (FramesOf(facts.num_samples) == 0) ++facts.num_samples;
    facts.duration_us = facts.num_samples * 1000000 / kSpeechRate;
    return facts;
  }

 private:
  // Of the last of the convolutions, which have no padding.
  uint64_t FramesOf(uint64_t length) const {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      if (length < settings_.kernels[layer]) return 0;
      length = (length - settings_.kernels[layer]) / settings_.strides[layer] + 1;
    }
    return length;
  }

  // In double precision, so that the result is within 1e-6 of NumPy's, whose sums are float32.
  static void Normalise(std::span<float> values) {
    constexpr double kLeastVariance = 1e-7;
    const auto count = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (const float value : values) sum += value;
    const double mean = sum / count;
    for (const float value : values) squares += (value - mean) * (value - mean);
    const double deviation = std::sqrt(squares / count + kLeastVariance);
    for (float& value : values) value = static_cast<float>((value - mean) / deviation);
  }

  const Wav2Vec2Settings settings_;
  const Limits limits_;
  const std::vector<FieldSpec> fields_;
};

// Kernels and strides of config.json, if it has them.
absl::Status ReadLayers(const CheckpointFolder& checkpoint, Wav2Vec2Settings& out) {
  constexpr uint64_t kMost = 1 << 16;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  for (const auto& [key, layers] : {std::pair("conv_kernel", &out.kernels), {"conv_stride", &out.strides}}) {
    if (!model.Has(key)) continue;
    const std::vector<uint64_t> read = model.Uints(key, kLayers, 1, kMost);
    for (size_t i = 0; i < read.size(); ++i) (*layers)[i] = static_cast<uint32_t>(read[i]);
  }
  model.Pin("add_adapter", false);  // whose layers shorten the output once more
  return model.Finish();
}

}  // namespace

MadeFamily MakeWav2Vec2(ConfigFile config, const FamilySource& source) {
  Wav2Vec2Settings settings;
  settings.normalized = config.Flag("do_normalize", true);
  config.Pin("feature_size", 1.0);
  config.Pin("sampling_rate", double{kSpeechRate});
  config.Pin("padding_side", std::string_view("right"));
  // A clip is never padded here: these concern the batches of a call.
  config.Inert({"padding_value", "return_attention_mask", "feature_extractor_type", "processor_class",
                "auto_map", "return_tensors", "_name_or_path", "transformers_version"});
  config.NotNull({"do_normalize"});
  if (config.Has("image_processor_type")) IgnoreImageProcessor(config);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(ReadLayers(source.checkpoint, settings));
  return std::make_unique<Wav2Vec2>(settings, source.limits);
}

}  // namespace evenkeel::preprocess
