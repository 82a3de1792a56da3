// Voxtral, Audio Flamingo 3 and GLM-ASR: clips as windows of 30 seconds, the input of Whisper's encoder.
//
// The rules are those of transformers' models/{voxtral,audioflamingo3,glmasr}/processing_*.py. Voxtral
// computes the features of the whole clip and cuts those; the others cut the clip. Voxtral's tokens follow
// mistral-common's rule: a window is padded, and 8 frames make a token.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/audio/log_mel.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen2_audio.h"
#include "preprocess/families/speech.h"

namespace evenkeel::preprocess {
namespace {

uint32_t VoxtralTokens(uint32_t frames) {
  constexpr uint32_t kOfWindow = LogMel::kFrames / 8;
  return (frames + LogMel::kFrames - 1) / LogMel::kFrames * kOfWindow;
}

// A convolution that halves the frames, then four rows merged into one.
uint32_t GlmAsrTokens(uint32_t frames) {
  const int64_t convolved = FloorDiv(int64_t{frames} - 1, 2) + 1;
  return static_cast<uint32_t>(std::max<int64_t>(FloorDiv(convolved - 4, 4) + 1, 0));
}

// Reads the extractor's file, and the maximum length of a clip in seconds from the processor's own.
absl::StatusOr<SpeechSettings> ReadWindows(ConfigFile& config, const FamilySource& source,
                                           uint64_t usual_seconds, const NamedToken& token) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  const auto seconds = static_cast<uint32_t>(outer.Uint("max_audio_len", usual_seconds, 1, 24 * 3600));
  outer.Inert({"default_transcription_prompt"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer, {token}));
  settings.shape = ClipShape::kWindows;
  settings.max_windows = seconds / (settings.padded_samples / kSpeechRate);
  if (settings.max_windows == 0)
    return outer.Error("max_audio_len", "is less than one window of the extractor");
  settings.mask = "input_features_mask";
  return settings;
}

}  // namespace

MadeFamily MakeVoxtral(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  if (settings.padded_samples != LogMel::kSamples) {
    return config.Error("chunk_length",
                        "only 30 is implemented for Voxtral, whose encoder takes 3000 frames");
  }
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  settings.shape = ClipShape::kWhole;
  settings.mask.clear();
  settings.tokens = VoxtralTokens;
  settings.style = {.medium = Medium::kAudio, .begin = "[BEGIN_AUDIO]", .placeholder = "[AUDIO]"};
  return MakeSpeech(std::move(settings), source.limits);
}

MadeFamily MakeAudioFlamingo3(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings,
                            ReadWindows(config, source, 600, {"audio_token", "<sound>"}));
  settings.tokens = Qwen2AudioTokens;
  settings.style = {.medium = Medium::kAudio, .placeholder = "<sound>"};
  return MakeSpeech(std::move(settings), source.limits);
}

MadeFamily MakeGlmAsr(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings,
                            ReadWindows(config, source, 655, {"audio_token", "<|pad|>"}));
  settings.tokens = GlmAsrTokens;
  settings.style = {.medium = Medium::kAudio,
                    .begin = "<|begin_of_audio|>",
                    .placeholder = "<|pad|>",
                    .end = "<|end_of_audio|>",
                    .template_has_ends = true};
  return MakeSpeech(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
