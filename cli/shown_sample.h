// One sample of a step, in a form that people can look at: its pieces of text with tokens and labels, small pictures of its media,
// and where everything goes. `evenkeel show` writes it to a terminal or as a page.
//
// Thread safety: functions without state; plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/part.h"
#include "core/words.h"
#include "preprocess/text/tokenizer.h"
#include "stream/stream.h"

namespace evenkeel::cli {

// Pixels, RGB, rows from top to bottom.
struct Thumbnail {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// The least and the greatest value of consecutive samples of sound, from -1 to 1.
struct Swing {
  float low = 0;
  float high = 0;
};

// A unit's place in a phase.
struct ShownPlace {
  std::string phase;
  uint32_t rank = 0;  // global
  uint32_t microbatch = 0;
  uint32_t position = 0;
  ItemLengths lengths;  // of an item
};

struct ShownItem {
  Medium medium = Medium::kImage;
  std::string suffix;
  MediaFacts facts;
  std::vector<ShownPlace> places;   // one for each phase that encodes it
  std::vector<Thumbnail> pictures;  // an image has one, a video some frames
  std::vector<Swing> waveform;      // audio
  std::vector<std::byte> source;    // the file, if a browser shows it and it is small enough; else empty
  std::string error;                // why it cannot be shown; empty: it can
};

// One token, or several that only together are characters.
struct ShownToken {
  std::vector<uint32_t> ids;
  std::string text;  // UTF-8 as the tokenizer decodes it: not safe for a terminal or a page
};

// Consecutive tokens of one kind.
struct ShownRun {
  bool trained = false;           // they have labels
  Medium medium = Medium::kText;  // of placeholders
  uint64_t num_tokens = 0;
  std::vector<ShownToken> tokens;  // of placeholders: the first
};

struct ShownSample {
  uint64_t number = 0;      // in the step
  std::string name;         // dataset/shard/key
  ShownPlace place;         // in the llm
  uint32_t llm_length = 0;  // aligned
  uint32_t tokens = 0;
  uint32_t loss_tokens = 0;
  std::vector<ShownRun> runs;
  std::vector<ShownItem> items;
  std::string columns;  // a JSON object; empty: the job names none
  std::string error;    // why its text is not that of the index; empty: it is
};

// Reads, decodes and tokenizes sample `number` of the step. Damaged data are no error: they are described. Errors of the index and
// of reading.
absl::StatusOr<ShownSample> ShowSample(const stream::Stream& stream, const stream::StepPlan& plan,
                                       const preprocess::Tokenizer& tokenizer, uint64_t number);

// `text` without anything that acts on a terminal: control characters, those of C1, and those that change the direction of text become
// escapes (\n, \x1b, \u202e); bytes that are not UTF-8 become U+FFFD.
std::string Visible(std::string_view text);

}  // namespace evenkeel::cli
