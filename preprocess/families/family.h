// A family of model processors: the fields, lengths and values of its media. One family, one file, one test.
//
// A family turns decoded pixels and samples into tensors. Containers and codecs are elsewhere
// (preprocess/image/image.h, audio.h, video.h), and so is text (preprocess/text/).
// registry.inc lists the families and explains how to add one.
//
// Thread safety: all members are const and may be called from many threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/digest.h"
#include "preprocess/families/consumed_keys.h"
#include "preprocess/processor.h"

namespace evenkeel::preprocess {

// How a medium of a family appears in a sequence; the strings are tokens of the tokenizer.
struct MediumStyle {
  Medium medium = Medium::kImage;
  std::string begin;        // "<|vision_start|>"; empty: none
  std::string placeholder;  // "<|image_pad|>", repeated output_rows times
  std::string end;          // "<|vision_end|>"; empty: none
  bool mrope = false;       // positions on the grid
  bool wraps_runs = false;  // begin and end also surround all runs of an item together
  std::string before = {};  // ordinary text before and after the whole item: "\n\n"
  std::string after = {};
  std::string last_end = {};             // replaces `end` after an item's last run: "[IMG_END]"; empty: `end`
  std::string behind_all = {};           // a token after the last item of a sample: "<bos>"; empty: none
  std::vector<std::string> tokens = {};  // special tokens that runs refer to by index
  // The token that the checkpoint's chat template writes for an item, and that its processor replaces; empty:
  // `placeholder`.
  std::string in_template = {};
  bool template_has_ends = false;  // the template writes begin and end itself, around the whole item
  // Tokens around all runs of an item together, which the checkpoint's template writes itself; empty: none.
  std::string item_begin = {};
  std::string item_end = {};
  // A chat template that replaces the checkpoint's own for conversations with such an item; empty: the checkpoint's.
  std::string own_template = {};
  // The processor puts the tokenizer's bos_token, else its eos_token, before a template's text that does not begin with
  // it.
  bool begins_text = false;

  bool operator==(const MediumStyle&) const = default;
};

// The grid of an item's patches, from which M-RoPE positions and placeholders are computed.
struct VisionGrid {
  uint32_t t = 0;
  uint32_t h = 0;  // in patches, before the merge
  uint32_t w = 0;
  float second_per_grid = 0;  // video
};

// Consecutive placeholders. An item is one such run, or, if its text has times or frames, one run for each of
// them. Runs without rows are pieces between them: text, or a special token.
struct PlaceholderRun {
  // Of a video with its audio, whose placeholders alternate, some runs are the video's and some the audio's. The first
  // run is the video's and has the grid of all of them.
  enum class Of : uint8_t { kItem, kVideo, kAudio };

  std::string text;               // ordinary text before the style's begin: "<0.5 seconds>"
  uint32_t rows = 0;              // the runs of an item add up to its output_rows
  VisionGrid grid;                // media with `mrope` only
  std::vector<int64_t> ids = {};  // token ids, after the text and before the style's begin
  // A piece without rows: the text, then the style's token with this index, without begin and end.
  std::optional<uint32_t> token = {};
  // The text ends with the item's number among those of its medium in its sequence, from 0, which Processor adds.
  bool numbered = false;
  Of of = Of::kItem;
};

struct AudioInVideo;  // preprocess/families/audio_in_video.h

// The number of pictures in the sample that a picture belongs to; 1 if unknown.
inline uint32_t PicturesOfSample(const MediaFacts& facts) { return std::max(facts.pictures_in_sample, 1u); }

class MediaFamily {
 public:
  virtual ~MediaFamily() = default;

  virtual std::vector<MediumStyle> styles() const = 0;  // one per medium that it accepts
  virtual uint32_t merge_size() const { return 1; }
  // Positions in time per second of video; 0: grids are 1 apart.
  virtual uint32_t tokens_per_second() const { return 0; }
  // True if the text after a video has later positions than the video's last grid in time.
  virtual bool after_time() const { return false; }
  // Fills `runs` with the item's placeholders. Default: one run of all its rows, without a grid.
  // Errors as Measure.
  virtual absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const;
  // The same for an item whose lengths are known. Here: as its facts say.
  virtual absl::Status PlannedPlaceholders(const MediaFacts& facts, const ItemLengths& /*planned*/,
                                           std::vector<PlaceholderRun>& runs) const {
    return Placeholders(facts, runs);
  }

  // Not null if the placeholders of a video can alternate with those of its audio, which PlaceholdersWithAudio then fills
  // into `runs`. Errors as Measure; Unimplemented here.
  virtual const AudioInVideo* audio_in_video() const { return nullptr; }
  virtual absl::Status PlaceholdersWithAudio(const MediaFacts& video, uint32_t audio_rows,
                                             std::vector<PlaceholderRun>& runs) const;

  // As the members of Processor.
  virtual const std::vector<FieldSpec>& fields(Medium medium) const = 0;
  virtual absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const = 0;
  virtual bool measures_stored(Medium) const { return false; }
  virtual absl::StatusOr<ItemLengths> MeasureStored(const MediaFacts& facts, std::string_view /*suffix*/,
                                                    std::span<const std::byte> /*bytes*/) const {
    return Measure(facts);
  }
  virtual absl::Status Produce(const ItemRequest& request,
                               std::span<const std::span<std::byte>> field_bytes) const = 0;
  // Checks the planned lengths and the buffers, and writes the fields that follow from an item's facts alone
  // (sizes, grids, masks): all except the first, which has the values that Produce() decodes. DataLoss: other
  // lengths than the planned ones; Internal: buffers of other sizes than the fields'.
  virtual absl::Status WriteFacts(const ItemRequest& request,
                                  std::span<const std::span<std::byte>> field_bytes) const = 0;
  // Here: what WriteFacts() writes, and zeros in the first field.
  virtual absl::Status FillInvalid(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const;
  virtual MediaFacts DummyFacts() const = 0;

  // Adds the values that the family was made from, which its loader keeps here.
  void AddTo(CanonicalText& text) const { consumed_.AddTo(text); }
  void Keep(ConsumedKeys consumed) { consumed_ = std::move(consumed); }

 private:
  ConsumedKeys consumed_;
};

// InvalidArgument if processor.like names no release; empty is fine.
absl::Status CheckLike(const std::string& like);

// Reads `folder`/preprocessor_config.json, or the nested object of processor_config.json.
absl::StatusOr<std::unique_ptr<MediaFamily>> LoadVisionFamily(const std::string& folder,
                                                              const ProcessorSpec& spec,
                                                              const Limits& limits);
absl::StatusOr<std::unique_ptr<MediaFamily>> LoadAudioFamily(const std::string& folder,
                                                             const ProcessorSpec& spec, const Limits& limits);

}  // namespace evenkeel::preprocess
