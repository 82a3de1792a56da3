// SeamlessM4T and w2v-BERT 2.0: Kaldi's log-mel features, each mel with a mean of zero and a variance of one, two frames
// in a row. An output row is one of the encoder, after its adapter where the model has one.
//
// The rules are those of transformers' models/seamless_m4t/feature_extraction_seamless_m4t.py, for a clip alone, and of
// the adapters' convolutions in models/{seamless_m4t,seamless_m4t_v2,wav2vec2_bert}.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "core/status.h"
#include "preprocess/audio/kaldi_features.h"
#include "preprocess/families/families.h"
#include "preprocess/families/speech_encoder.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kStride = 2;  // frames in a row
// Of one frame alone there is no variance.
constexpr uint32_t kLeastSamples = KaldiFeatures::kWindow + KaldiFeatures::kHop;

struct SeamlessSettings {
  uint32_t num_mels = 80;
  float padding = 0;  // the second half of the last row of an odd number of frames
  uint32_t adapter_layers = 0;
  uint32_t adapter_kernel = 8;
  uint32_t adapter_stride = 8;

  uint32_t padding_of_adapter() const { return adapter_stride / 2 * 2; }  // at both ends together
};

// NumPy's sum of f32: eight sums of blocks of up to 128 values, and blocks in pairs. Features are divided by a deviation
// that may be small, so sums of another order would differ by more than 1e-6.
float PairwiseSum(std::span<const float> values) {
  constexpr size_t kBlock = 128, kSums = 8;
  const size_t count = values.size();
  if (count > kBlock) {
    const size_t half = count / 2 - count / 2 % kSums;
    return PairwiseSum(values.first(half)) + PairwiseSum(values.subspan(half));
  }
  float sum = 0;
  size_t i = 0;
  if (count >= kSums) {
    float sums[kSums];
    std::copy_n(values.begin(), kSums, sums);
    for (i = kSums; i + kSums <= count; i += kSums) {
      for (size_t k = 0; k < kSums; ++k) sums[k] += values[i + k];
    }
    sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
  for (; i < count; ++i) sum += values[i];
  return sum;
}

// `values` of one mel: (x - mean) / sqrt(variance + 1e-7), in f32 as NumPy computes it. `squares`: scratch memory.
void Normalise(std::span<float> values, std::span<float> squares) {
  const auto count = static_cast<float>(values.size());
  const float mean = PairwiseSum(values) / count;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] -= mean;
    squares[i] = values[i] * values[i];
  }
  const float variance = PairwiseSum(squares) / (count - 1);
  const float deviation = std::sqrt(variance + 1e-7f);
  for (float& value : values) value /= deviation;
}

class SeamlessM4t final : public SpeechEncoder {
 public:
  SeamlessM4t(const SeamlessSettings& settings, const Limits& limits)
      : SpeechEncoder(
            {{"input_features", DType::kF32, true, {uint64_t{settings.num_mels} * kStride}, nullptr},
             {"attention_mask", DType::kI64, true, {}, nullptr}},
            limits, {.least_samples = kLeastSamples}),
        settings_(settings),
        features_({.num_mels = settings.num_mels, .window = KaldiWindow::kPovey, .gain = 32768}) {}

 protected:
  ItemLengths LengthsOf(uint64_t samples) const override {
    const auto rows = static_cast<uint32_t>((KaldiFeatures::Frames(samples) + kStride - 1) / kStride);
    uint64_t out = rows;
    for (uint32_t layer = 0; layer < settings_.adapter_layers; ++layer) {
      out = (out + settings_.padding_of_adapter() - settings_.adapter_kernel) / settings_.adapter_stride + 1;
    }
    return {rows, rows, static_cast<uint32_t>(out)};
  }

  bool Features(std::span<const float> samples, std::span<float> out) const override {
    const size_t frames = KaldiFeatures::Frames(samples.size()), num_mels = settings_.num_mels;
    static thread_local ScratchBytes memory;
    const std::span<float> scratch = memory.GetAs<float>((num_mels + 1) * frames);
    const std::span<float> by_mel = scratch.first(num_mels * frames);
    if (!features_.Compute(samples, by_mel)) return false;
    for (size_t mel = 0; mel < num_mels; ++mel) {
      const std::span<float> values = by_mel.subspan(mel * frames, frames);
      Normalise(values, scratch.last(frames));
      for (size_t frame = 0; frame < frames; ++frame) out[frame * num_mels + mel] = values[frame];
    }
    std::fill(out.begin() + static_cast<ptrdiff_t>(frames * num_mels), out.end(), settings_.padding);
    return true;
  }

  // A row counts if its second frame does.
  void WriteMask(uint64_t samples, std::span<int64_t> mask) const override {
    const uint64_t whole = KaldiFeatures::Frames(samples) / kStride;
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = i < whole ? 1 : 0;
  }

 private:
  const SeamlessSettings settings_;
  const KaldiFeatures features_;
};

// SeamlessM4T writes `adaptor_kernel_size`, w2v-BERT `adapter_kernel_size`. Without config.json there is no adapter.
absl::Status ReadAdapter(const CheckpointFolder& checkpoint, SeamlessSettings& out) {
  constexpr uint64_t kMost = 1 << 10;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  if (model.Flag("add_adapter", false)) {
    const bool own = model.Has("adapter_kernel_size") || model.Has("adapter_stride");
    out.adapter_layers = static_cast<uint32_t>(model.Uint("num_adapter_layers", 1, 1, 16));
    out.adapter_kernel = static_cast<uint32_t>(
        model.Uint(own ? "adapter_kernel_size" : "adaptor_kernel_size", own ? 3 : 8, 1, kMost));
    out.adapter_stride =
        static_cast<uint32_t>(model.Uint(own ? "adapter_stride" : "adaptor_stride", own ? 2 : 8, 1, kMost));
  }
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  if (out.adapter_kernel > out.padding_of_adapter() + 1) {
    return model.Error("add_adapter",
                       "only a kernel of at most the stride + 1 is implemented, so that a row remains");
  }
  return absl::OkStatus();
}

}  // namespace

MadeFamily MakeSeamlessM4t(ConfigFile config, const FamilySource& source) {
  SeamlessSettings settings;
  settings.num_mels = static_cast<uint32_t>(config.Uint("num_mel_bins", 80, 1, 512));
  settings.padding = static_cast<float>(config.Real("padding_value", 0));
  config.Uint("feature_size", 80, 2,
              512);  // with 1, transformers would pad an odd number of frames otherwise
  config.Pin("stride", double{kStride});
  config.NotNull({"num_mel_bins", "padding_value", "feature_size", "stride"});
  ReadCommonSpeechKeys(config, kSpeechRate);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(ReadAdapter(source.checkpoint, settings));
  return std::make_unique<SeamlessM4t>(settings, source.limits);
}

}  // namespace evenkeel::preprocess
