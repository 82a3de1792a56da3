// Whisper itself: clips padded to 30 seconds. The encoder makes one row of two frames, whatever the
// clip's length.
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio/log_mel.h"
#include "preprocess/families/families.h"
#include "preprocess/families/speech.h"

namespace evenkeel::preprocess {

MadeFamily MakeWhisper(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  if (settings.padded_samples != LogMel::kSamples) {
    return config.Error("chunk_length",
                        "only 30 is implemented for Whisper, whose encoder takes 3000 frames");
  }
  settings.tokens = [](uint32_t) { return LogMel::kFrames / 2; };
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  return MakeSpeech(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
