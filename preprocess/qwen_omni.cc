// The audio of Qwen2.5-Omni and Qwen3-Omni. Audio inside a video's own span is not implemented.
//
// The rules are those of transformers' models/{qwen2_5_omni,qwen3_omni_moe}/processing_*.py: Qwen2.5-Omni
// pads clips to the extractor's chunk_length (300 s) and masks; Qwen3-Omni pads to the longest clip of a call
// and cuts nothing. A call's composition means nothing here: every clip is what it is in a call of its own.
#include "preprocess/qwen_omni.h"

#include <utility>

#include "core/status.h"
#include "preprocess/families.h"
#include "preprocess/qwen2_audio.h"
#include "preprocess/speech.h"

namespace evenkeel {

uint32_t Qwen3OmniTokens(uint32_t frames) {
  constexpr uint32_t kChunk = 100;
  constexpr int64_t kTokensOfChunk = 13;
  int64_t rest = frames % kChunk;
  for (int halving = 0; halving < 3; ++halving) rest = FloorDiv(rest - 1, 2) + 1;
  return static_cast<uint32_t>(rest + frames / kChunk * kTokensOfChunk);
}

MadeFamily MakeQwen2Omni(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  settings.tokens = Qwen2AudioTokens;
  settings.encodes_padding = false;
  settings.style = {Medium::kAudio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>", /*mrope=*/false};
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.folder));
  return MakeSpeech(std::move(settings), source.limits);
}

MadeFamily MakeQwen3Omni(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  settings.padded_samples = 0;
  settings.tokens = Qwen3OmniTokens;
  settings.encodes_padding = false;
  settings.style = {Medium::kAudio, "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>", /*mrope=*/false};
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.folder));
  return MakeSpeech(std::move(settings), source.limits);
}

}  // namespace evenkeel
