// The words of the project as plain structs: media, phases, lengths, sample references.
// Thread safety: plain values; needs none.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// What an item is. The numbers are those of mm_token_type_ids and of the index; never renumber.
enum class Medium : uint8_t { kText = 0, kImage = 1, kVideo = 2, kAudio = 3 };

// Those of items.
inline constexpr std::array kItemMedia = {Medium::kImage, Medium::kVideo, Medium::kAudio};

// The most phases of a job, the llm included; small, so that what is kept per phase is an array.
inline constexpr size_t kMaxPhases = 16;

// SampleItem::tower of a target: an item that a generator learns to make. No encoder's number is as high.
inline constexpr uint8_t kTargetTower = kMaxPhases - 1;
// In mm_token_type_ids, the placeholders of targets have this added to the number of their medium.
inline constexpr uint8_t kTargetType = 4;

// A phase of a job, one submodule's execution: its name, its number in the job's list (the llm is 0) and the
// media that it takes (the llm: none). The job decides all three. A phase encodes items of its media, or, if it
// is a generator, learns to make them from what the llm computes. A phase is known by its name: phases of one
// name are equal, whatever else they hold, since messages carry the name alone.
//
// Example:
//     const Phase tower("tower", 3, {Medium::kImage});
//     tower.encodes(Medium::kImage);   // true
class Phase {
 public:
  static constexpr size_t kMaxName = 28;
  static const Phase kLlm;

  constexpr Phase() : Phase("llm", 0, {}) {}
  // `name` has at most kMaxName characters (what follows is cut off); `number` is below kMaxPhases.
  constexpr explicit Phase(std::string_view name, uint8_t number = 0,
                           std::initializer_list<Medium> media = {})
      : number_(number), length_(static_cast<uint8_t>(name.size() < kMaxName ? name.size() : kMaxName)) {
    for (size_t i = 0; i < length_; ++i) name_[i] = name[i];
    for (Medium medium : media) Add(medium);
  }
  constexpr void Add(Medium medium) {
    media_ = static_cast<uint8_t>(media_ | 1u << static_cast<uint8_t>(medium));
  }

  constexpr std::string_view name() const { return {name_.data(), length_}; }
  constexpr uint8_t number() const { return number_; }
  constexpr void BecomeGenerator() { media_ |= kGenerator; }

  // Whether items of the medium are the phase's: those that it encodes or, of a generator, its targets.
  constexpr bool takes(Medium medium) const { return (media_ >> static_cast<uint8_t>(medium) & 1) != 0; }
  constexpr bool is_generator() const { return (media_ & kGenerator) != 0; }
  constexpr bool encodes(Medium medium) const { return takes(medium) && !is_generator(); }
  constexpr bool generates(Medium medium) const { return takes(medium) && is_generator(); }
  // A phase that a message names: its number, of the same job, is known only now.
  constexpr Phase Numbered(uint8_t number) const {
    Phase numbered = *this;
    numbered.number_ = number;
    return numbered;
  }

  friend constexpr bool operator==(const Phase& a, const Phase& b) { return a.name() == b.name(); }
  friend constexpr auto operator<=>(const Phase& a, const Phase& b) { return a.name() <=> b.name(); }

 private:
  static constexpr uint8_t kGenerator = 1u << 7;

  uint8_t number_ = 0;
  uint8_t media_ = 0;  // a bit for each Medium, and kGenerator
  uint8_t length_ = 0;
  std::array<char, kMaxName> name_{};
};
inline constexpr Phase Phase::kLlm = Phase();

// Lower-case letters, digits, '_' and '-', at most Phase::kMaxName of them, the first a letter.
bool IsPhaseName(std::string_view name);
// The name, for messages. Valid as long as `phase`.
constexpr std::string_view PhaseName(const Phase& phase) { return phase.name(); }

// "text", "image", "video", "audio".
std::string_view MediumName(Medium medium);
// "image,video": what the phase takes.
std::string MediaNames(const Phase& phase);

// The lengths of an item in its phase, all known before decoding.
struct ItemLengths {
  uint32_t cost_length = 0;  // what the encoder computes (patches, frames); a padded clip costs its padding
  uint32_t input_rows = 0;   // rows of the phase's input: patches; mel frames
  uint32_t output_rows = 0;  // rows after merge or pool = placeholders in the sequence

  friend bool operator==(const ItemLengths&, const ItemLengths&) = default;
};

// One item of a sample in one of the phases that encode it, as the planner sees it. An item that several
// phases encode is there once for each, one after the other.
struct SampleItem {
  Medium medium = Medium::kImage;
  ItemLengths lengths;
  // Among the job's phases that encode the medium; kTargetTower: its generator.
  uint8_t tower = 0;
  // The audio of the video before it, among whose placeholders its own are. It is stored in the video's bytes.
  bool of_video = false;

  // Whether the sequence has its placeholders. Of an item that several phases encode the first entry has them.
  bool has_placeholders() const { return tower == 0 || tower == kTargetTower; }
  // Whether it is the first entry of what the sample stores as one medium.
  bool begins_medium() const { return has_placeholders() && !of_video; }

  friend bool operator==(const SampleItem&, const SampleItem&) = default;
};

// A sample's lengths for one processor: a row of the index.
struct SampleLengths {
  uint32_t llm_length = 0;        // tokens of the whole interleaved sequence, before alignment
  uint32_t loss_tokens = 0;       // labels other than -100 after the shift
  std::vector<SampleItem> items;  // in the order of their placeholders, towers of an item ascending
  // Of a preference pair, the tokens of its first sequence, the chosen one: llm_length is of both, and each has the items of
  // the prompt. 0: no pair.
  uint32_t chosen_length = 0;

  friend bool operator==(const SampleLengths&, const SampleLengths&) = default;
};

// Tokens that a sample takes where every sequence is padded to a multiple of `align`, which is above 0.
constexpr uint64_t AlignedLength(uint64_t tokens, uint64_t align) {
  return (tokens + align - 1) / align * align;
}
inline uint64_t AlignedLength(const SampleLengths& lengths, uint64_t align) {
  return AlignedLength(uint64_t{lengths.chosen_length}, align) +
         AlignedLength(uint64_t{lengths.llm_length - lengths.chosen_length}, align);
}

// Facts of an item, from its header or one pass over its packets; independent of the processor.
struct MediaFacts {
  Medium medium = Medium::kImage;
  uint32_t width = 0;  // pixels, as stored (before any rotation metadata); images and video
  uint32_t height = 0;
  uint32_t rotation = 0;    // degrees clockwise from metadata: 0, 90, 180, 270
  uint32_t num_frames = 0;  // video: frames that a decode of the whole stream delivers
  // Audio, and that of a video where the job uses it: Hz, and samples per channel.
  uint32_t sample_rate = 0;
  uint32_t channels = 0;
  uint64_t num_samples = 0;
  uint64_t duration_us = 0;  // video and audio, microseconds
  uint32_t fps_num = 0;      // video: average frame rate as a fraction
  uint32_t fps_den = 0;
  // Images: how many its sample has, since some processors cut a picture otherwise if there are several; 0: unknown. Of
  // the sample, so it is not stored with the item.
  uint32_t pictures_in_sample = 0;

  // Whether it is a video whose audio is an item, too: see AudioOf.
  bool has_audio() const { return medium == Medium::kVideo && num_samples != 0; }

  friend bool operator==(const MediaFacts&, const MediaFacts&) = default;
};

// The facts of the audio of a video that has_audio().
MediaFacts AudioOf(const MediaFacts& video);

// One draw of the sampler: which sample, and which pass over its dataset.
struct SampleRef {
  uint32_t dataset = 0;  // position in the job's list
  uint64_t epoch = 0;
  uint64_t index = 0;  // row of the dataset in the index, excluded samples not counted

  friend bool operator==(const SampleRef&, const SampleRef&) = default;
};

}  // namespace evenkeel
