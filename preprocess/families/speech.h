// What the audio families share: log-mel features of WhisperFeatureExtractor, padded to a length or as long
// as the clip, and the number of tokens that an encoder makes of them. Each family's file selects the
// variant.
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
#include "preprocess/audio/audio.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

// Rounds down, as Python's // does; C++'s division rounds towards zero.
constexpr int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// Frames of 10 ms that the extractor's mask marks in a clip padded to `padded_samples`: one per 160 samples,
// rounded up.
uint32_t MaskedFrames(uint64_t num_samples, uint32_t padded_samples);

// How a clip becomes features.
enum class ClipShape : uint8_t {
  kPadded,    // padded to padded_samples, or cut
  kUnpadded,  // neither padded nor cut; rows of the features are frames
  kWindows,   // cut into windows of padded_samples, each processed as a clip of its own
  kWhole,     // padded to a multiple of padded_samples; its features are cut into windows
};

struct SpeechSettings {
  uint32_t num_mels = 80;
  ClipShape shape = ClipShape::kPadded;
  uint32_t padded_samples = 0;                  // at 16 kHz; unused for kUnpadded
  uint32_t max_windows = 0;                     // longer clips are cut; 0: no bound
  uint32_t min_samples = 0;                     // kUnpadded: shorter clips are padded with zeros
  std::string mask = "feature_attention_mask";  // the mask's field, if clips are padded; empty: no such field
  // The number of tokens of all windows together; 0: the clip is too short.
  uint32_t (*tokens)(uint32_t masked_frames) = nullptr;
  bool encodes_padding = true;       // the encoder's cost includes padding
  std::optional<MediumStyle> style;  // nullopt: clips do not occur in a sequence
};

// The clip's first `planned` samples at `rate`; what was filled or trimmed is noted in the request. Errors of DecodeSpeech;
// DataLoss, too, if there are fewer.
absl::StatusOr<DecodedAudio> DecodePlanned(const ItemRequest& request, uint64_t planned, const Limits& limits,
                                           uint32_t rate = kSpeechRate);

// Reads the feature extractor's keys; padded_samples is its chunk_length.
absl::StatusOr<SpeechSettings> ReadSpeechSettings(ConfigFile& config);

// Fields of kPadded: input_features [1, num_mels, frames], feature_attention_mask [1, frames]; of windows the
// same with one row per window. Fields of kUnpadded: input_features [frames, num_mels], which is what the
// model's own mask keeps, and audio_feature_lengths [1].
std::unique_ptr<MediaFamily> MakeSpeech(SpeechSettings settings, const Limits& limits);

}  // namespace evenkeel::preprocess
