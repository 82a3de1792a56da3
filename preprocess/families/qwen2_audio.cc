// Qwen2-Audio: Whisper's features, padded to 30 seconds, and the encoder's tokens.
//
// The rules are those of transformers' models/qwen2_audio/processing_qwen2_audio.py.
#include "preprocess/families/qwen2_audio.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"

namespace evenkeel::preprocess {

uint32_t Qwen2AudioTokens(uint32_t frames) {
  const int64_t convolved = FloorDiv(int64_t{frames} - 1, 2) + 1;
  const int64_t pooled = FloorDiv(convolved - 2, 2) + 1;
  return static_cast<uint32_t>(std::max<int64_t>(pooled, 0));
}

void SetQwen2Clips(SpeechSettings& settings) {
  settings.tokens = Qwen2AudioTokens;
  settings.style = {Medium::kAudio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>", /*mrope=*/false};
  settings.style->template_has_ends = true;
}

MadeFamily MakeQwen2Audio(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  SetQwen2Clips(settings);
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint, {{"audio_token", "<|AUDIO|>"},
                                                           {"audio_bos_token", "<|audio_bos|>"},
                                                           {"audio_eos_token", "<|audio_eos|>"}}));
  return MakeSpeech(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
