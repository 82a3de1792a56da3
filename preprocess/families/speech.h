// What the audio families share: log-mel features of WhisperFeatureExtractor, padded to a length or as long
// as the clip, and the tokens that an encoder makes of them. whisper.cc, qwen2_audio.cc and qwen_omni.cc say
// which.
//
// The rules of lengths are those of transformers' models/whisper/feature_extraction_whisper.py.
//
// Thread safety: as MediaFamily.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

// Rounds down, as Python's // does; C++ rounds towards zero.
constexpr int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// Frames of 10 ms that the extractor's mask counts of a clip padded to `padded_samples`: one for every 160
// samples begun.
uint32_t MaskedFrames(uint64_t num_samples, uint32_t padded_samples);

struct SpeechSettings {
  uint32_t num_mels = 80;
  std::string processor_class;
  // Clips are padded to so many samples at 16 kHz, or cut. 0: neither, and rows of the features are frames.
  uint32_t padded_samples = 0;
  // Tokens of so many masked frames; 0: too short.
  uint32_t (*tokens)(uint32_t masked_frames) = nullptr;
  bool encodes_padding = true;       // what the encoder computes
  std::optional<MediumStyle> style;  // nothing: clips are no part of a sequence
};

// The feature extractor's keys; padded_samples is its chunk_length.
absl::StatusOr<SpeechSettings> ReadSpeechSettings(ConfigFile& config);

// Fields where clips are padded: input_features [1, num_mels, frames], feature_attention_mask [1, frames].
// Else: input_features [frames, num_mels], which is what the model's own mask leaves of them, and
// audio_feature_lengths [1].
std::unique_ptr<MediaFamily> MakeSpeech(SpeechSettings settings, const Limits& limits);

}  // namespace evenkeel::preprocess
