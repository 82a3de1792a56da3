// What speech encoders share: measuring, decoding and checking a clip.
#include "preprocess/families/speech_encoder.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/families/speech.h"

namespace evenkeel::preprocess {

absl::StatusOr<ItemLengths> SpeechEncoder::Measure(const MediaFacts& facts) const {
  const uint64_t samples = SpeechSamples(facts, clips_.rate);
  const bool too_long = samples > std::numeric_limits<uint32_t>::max();
  if (too_long || samples < clips_.least_samples) {
    return absl::InvalidArgumentError(absl::StrCat("clip of ", facts.num_samples, " samples at ",
                                                   facts.sample_rate, " Hz is too ",
                                                   too_long ? "long" : "short for one frame"));
  }
  return LengthsOf(samples);
}

absl::Status SpeechEncoder::Produce(const ItemRequest& request,
                                    std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
  EVENKEEL_ASSIGN_OR_RETURN(
      const DecodedAudio audio,
      DecodePlanned(request, UsedSamples(SpeechSamples(request.facts, clips_.rate)), limits_, clips_.rate));
  const std::span<float> out(reinterpret_cast<float*>(field_bytes[0].data()),
                             field_bytes[0].size() / sizeof(float));
  if (!Features(audio.samples, out)) return absl::DataLossError("audio contains NaN or infinite samples");
  return absl::OkStatus();
}

absl::Status SpeechEncoder::WriteFacts(const ItemRequest& request,
                                       std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, Measure(request.facts));
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got a clip of ", lengths.output_rows, " rows, the plan has ",
                                            request.planned.output_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
  if (fields_.size() > 1) {
    WriteMask(SpeechSamples(request.facts, clips_.rate),
              {reinterpret_cast<int64_t*>(field_bytes[1].data()), field_bytes[1].size() / sizeof(int64_t)});
  }
  return absl::OkStatus();
}

MediaFacts SpeechEncoder::DummyFacts() const {
  MediaFacts facts;
  facts.medium = Medium::kAudio;
  facts.sample_rate = clips_.rate;
  facts.channels = 1;
  facts.num_samples = clips_.least_samples;
  facts.duration_us = facts.num_samples * 1000000 / clips_.rate;
  return facts;
}

void ReadCommonSpeechKeys(ConfigFile& config, uint32_t rate) {
  config.Pin("sampling_rate", static_cast<double>(rate));
  config.Pin("padding_side", std::string_view("right"));
  config.Inert({"return_attention_mask", "feature_extractor_type", "processor_class", "mel_filters", "window",
                "auto_map", "return_tensors", "_name_or_path", "transformers_version"});
  if (config.Has("image_processor_type")) IgnoreImageProcessor(config);
}

}  // namespace evenkeel::preprocess
