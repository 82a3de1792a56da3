// The words of the project as plain structs: media, phases, lengths, sample references.
// Thread safety: plain values; needs none.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// What an item is. The numbers are those of mm_token_type_ids and of the index; never renumber.
enum class Medium : uint8_t { kText = 0, kImage = 1, kVideo = 2, kAudio = 3 };

// One submodule's execution. `kLlm` consumes sequences; the others encode items.
enum class Phase : uint8_t { kLlm = 0, kVision = 1, kAudio = 2 };
inline constexpr int kNumPhases = 3;
inline constexpr std::array<Phase, kNumPhases> kAllPhases = {Phase::kLlm, Phase::kVision, Phase::kAudio};
inline constexpr std::array<Phase, 2> kEncoderPhases = {Phase::kVision, Phase::kAudio};

// "text", "image", "video", "audio".
std::string_view MediumName(Medium medium);
// "llm", "vision", "audio".
std::string_view PhaseName(Phase phase);
std::optional<Phase> PhaseFromName(std::string_view name);

// The phase that encodes a medium. Text belongs to the llm.
constexpr Phase PhaseOf(Medium medium) {
  switch (medium) {
    case Medium::kImage:
    case Medium::kVideo:
      return Phase::kVision;
    case Medium::kAudio:
      return Phase::kAudio;
    case Medium::kText:
      break;
  }
  return Phase::kLlm;
}

// The lengths of an item in its phase, all known before decoding.
struct ItemLengths {
  uint32_t cost_length = 0;  // what the encoder computes (patches, frames); a padded clip costs its padding
  uint32_t input_rows = 0;   // rows of the phase's input: patches; mel frames
  uint32_t output_rows = 0;  // rows after merge or pool = placeholders in the sequence

  friend bool operator==(const ItemLengths&, const ItemLengths&) = default;
};

// One item of a sample, as the planner sees it.
struct SampleItem {
  Medium medium = Medium::kImage;
  ItemLengths lengths;

  friend bool operator==(const SampleItem&, const SampleItem&) = default;
};

// A sample's lengths for one processor: a row of the index.
struct SampleLengths {
  uint32_t llm_length = 0;        // tokens of the whole interleaved sequence, before alignment
  uint32_t loss_tokens = 0;       // labels other than -100 after the shift
  std::vector<SampleItem> items;  // in the order of their placeholders

  friend bool operator==(const SampleLengths&, const SampleLengths&) = default;
};

// Facts of an item, from its header or one pass over its packets; independent of the processor.
struct MediaFacts {
  Medium medium = Medium::kImage;
  uint32_t width = 0;  // pixels, as stored (before any rotation metadata); images and video
  uint32_t height = 0;
  uint32_t rotation = 0;     // degrees clockwise from metadata: 0, 90, 180, 270
  uint32_t num_frames = 0;   // video: frames that a decode of the whole stream delivers
  uint32_t sample_rate = 0;  // audio, Hz
  uint32_t channels = 0;     // audio
  uint64_t num_samples = 0;  // audio: per channel at sample_rate
  uint64_t duration_us = 0;  // video and audio, microseconds
  uint32_t fps_num = 0;      // video: average frame rate as a fraction
  uint32_t fps_den = 0;

  friend bool operator==(const MediaFacts&, const MediaFacts&) = default;
};

// One draw of the sampler: which sample, and which pass over its dataset.
struct SampleRef {
  uint32_t dataset = 0;  // position in the job's list
  uint64_t epoch = 0;
  uint64_t index = 0;  // row of the dataset in the index, excluded samples not counted

  friend bool operator==(const SampleRef&, const SampleRef&) = default;
};

}  // namespace evenkeel
