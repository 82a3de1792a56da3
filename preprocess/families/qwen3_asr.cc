// Qwen3-ASR: clips are neither padded nor cut, except short ones, which are padded to half a second.
//
// The rules are those of transformers' models/qwen3_asr/{feature_extraction,processing}_qwen3_asr.py. The
// padding that its extractor adds within a call is removed again by its mask.
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_omni.h"

namespace evenkeel::preprocess {

MadeFamily MakeQwen3Asr(ConfigFile config, const FamilySource& source) {
  const auto min_samples = static_cast<uint32_t>(config.Uint("min_length", 8000, 0, 1 << 20));
  // The processor requests this in every call, whatever the file has.
  config.Inert({"n_window"});
  if (!config.Has("feature_size")) {
    return config.Error("feature_size", "is missing; transformers writes the number of mels");
  }
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  outer.Inert({"timestamp_segment_time"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  SetQwen3Clips(settings);
  settings.min_samples = min_samples;
  return MakeSpeech(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
