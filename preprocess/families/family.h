// A family of model processors: what its media become. One family, one file, one test.
//
// A family knows fields, lengths and values of the items of its media. It does not know containers and codecs
// (preprocess/image/image.h, audio.h, video.h) nor text (preprocess/text/).
// To add a family: write it, and name its `image_processor_type` or `feature_extractor_type` in family.cc.
//
// Thread safety: all members are const and may be called from many threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/digest.h"
#include "preprocess/processor.h"

namespace evenkeel::preprocess {

// How a family's media look inside a sequence; the texts are tokens of the tokenizer.
struct MediumStyle {
  Medium medium = Medium::kImage;
  std::string begin;        // "<|vision_start|>"; empty: none
  std::string placeholder;  // "<|image_pad|>", repeated output_rows times
  std::string end;          // "<|vision_end|>"; empty: none
  bool mrope = false;       // positions on the grid
  bool wraps_runs = false;  // begin and end stand around all runs of an item, too
  std::string before;       // ordinary text before and behind all of an item: "\n\n"
  std::string after;
  std::string last_end;             // in place of `end` behind an item's last run: "[IMG_END]"; empty: `end`
  std::string behind_all;           // a token behind the last item of a sample: "<bos>"; empty: none
  std::vector<std::string> tokens;  // special tokens that its runs name by their place here
  // The token that the checkpoint's chat template writes for an item, and its processor replaces; empty: `placeholder`.
  std::string in_template = {};
  bool template_has_ends = false;  // the template writes begin and end itself, around all of an item
};

// The grid that M-RoPE positions and placeholders count on.
struct VisionGrid {
  uint32_t t = 0;
  uint32_t h = 0;  // in patches, before the merge
  uint32_t w = 0;
  float second_per_grid = 0;  // video
};

// Placeholders that follow each other. An item is one such run, or, where its text has times or frames, one
// for each of them. Runs without rows are pieces between them: text, or a special token.
struct PlaceholderRun {
  std::string text;   // ordinary text before the style's begin: "<0.5 seconds>"
  uint32_t rows = 0;  // the runs of an item add up to its output_rows
  VisionGrid grid;    // media with `mrope` only
  // A piece without rows: the text, and after it this one of the style's `tokens`, neither begin nor end.
  std::optional<uint32_t> token;
};

// Pictures of the sample that a picture is in; 1 where that is unknown. The index counts them into num_frames
// (dataset/format/items_of_sample.h).
inline uint32_t PicturesOfSample(const MediaFacts& facts) { return std::max(facts.num_frames, 1u); }

class MediaFamily {
 public:
  virtual ~MediaFamily() = default;

  virtual std::vector<MediumStyle> styles() const = 0;  // one for each medium that it takes
  virtual uint32_t merge_size() const { return 1; }
  // Positions a second of video, in time; 0: grids are 1 apart.
  virtual uint32_t tokens_per_second() const { return 0; }
  // What follows a video has later positions than its last grid in time.
  virtual bool after_time() const { return false; }
  // Makes `runs` say how an item stands in the sequence. Here: one run of all its rows, without a grid.
  // Errors as Measure.
  virtual absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const;

  // As the members of Processor.
  virtual const std::vector<FieldSpec>& fields(Medium medium) const = 0;
  virtual absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const = 0;
  virtual absl::Status Produce(const ItemRequest& request,
                               std::span<const std::span<std::byte>> field_bytes) const = 0;
  virtual absl::Status FillInvalid(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const = 0;
  virtual MediaFacts DummyFacts() const = 0;

  // Every value that was consumed from the configuration or from the job.
  virtual void AddTo(CanonicalText& text) const = 0;
};

// Reads `folder`/preprocessor_config.json, or the nested object of processor_config.json.
absl::StatusOr<std::unique_ptr<MediaFamily>> LoadVisionFamily(const std::string& folder,
                                                              const ProcessorSpec& spec,
                                                              const Limits& limits);
absl::StatusOr<std::unique_ptr<MediaFamily>> LoadAudioFamily(const std::string& folder,
                                                             const ProcessorSpec& spec, const Limits& limits);

}  // namespace evenkeel::preprocess
