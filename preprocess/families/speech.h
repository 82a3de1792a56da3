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

// How a clip becomes features.
enum class ClipShape : uint8_t {
  kPadded,    // to padded_samples, or cut
  kUnpadded,  // neither; rows of the features are frames
  kWindows,   // cut into windows of padded_samples, each as a clip of its own
  kWhole,     // padded to a multiple of padded_samples, and its features then cut into windows
};

struct SpeechSettings {
  uint32_t num_mels = 80;
  std::string processor_class;
  ClipShape shape = ClipShape::kPadded;
  uint32_t padded_samples = 0;                  // at 16 kHz; of kUnpadded none
  uint32_t max_windows = 0;                     // what is beyond them is cut off; 0: no bound
  uint32_t min_samples = 0;                     // of kUnpadded: shorter clips are filled with zeroes
  std::string mask = "feature_attention_mask";  // where clips are padded; empty: no such field
  // Tokens of so many masked frames, of all windows together; 0: too short.
  uint32_t (*tokens)(uint32_t masked_frames) = nullptr;
  bool encodes_padding = true;       // what the encoder computes
  std::optional<MediumStyle> style;  // nothing: clips are no part of a sequence
};

// The feature extractor's keys; padded_samples is its chunk_length.
absl::StatusOr<SpeechSettings> ReadSpeechSettings(ConfigFile& config);

// Fields of kPadded: input_features [1, num_mels, frames], feature_attention_mask [1, frames]; of windows the
// same with one row for each of them. Of kUnpadded: input_features [frames, num_mels], which is what the
// model's own mask leaves of them, and audio_feature_lengths [1].
std::unique_ptr<MediaFamily> MakeSpeech(SpeechSettings settings, const Limits& limits);

}  // namespace evenkeel::preprocess
