// Conversation -> sequence: rendered, tokenized, expanded, labelled, with positions.
//
// This is all that a model's processor does with text: the chat's special tokens, the placeholders of media,
// which tokens are trained, and M-RoPE positions. Media (family.h), padding and packing are done elsewhere.
//
// A chat is written by the checkpoint's own template (templated_chat.h) or by a style of rendering.h. A style
// also defines what is trained: the assistant's text and the special token that ends its turn. The style
// `plain` writes the turns' contents one after another, then the end-of-text token of the tokenizer; the text
// of assistant turns is trained, and the end token if the last turn is an assistant's. A conversation marked
// plain is rendered in this style in any case, and all its text is trained.
//
// A sample that is stored as tokens is these tokens, all trained: nothing is written around them.
//
// A medium is its style's begin token, output_rows placeholders and its end token, or several such runs with
// text between them; none of that is ever trained. The text of a sample cannot spell a special token or a
// placeholder: docs/decisions/0003-text.md.
//
// A preference pair is two sequences, each written and tokenized by itself; the turns of the prompt are not trained.
//
// A sequence longer than limits.max_llm_length is refused, so that the index leaves its sample out. With
// processor.truncate: text its end is cut off instead, unless a medium would lose a placeholder; of a pair, both are cut to
// half of the limit.
//
// Example:
//     SequenceStyle style{.media = family->styles(), .merge_size = 2, .tokens_per_second = 2};
//     EVENKEEL_ASSIGN_OR_RETURN(auto builder, SequenceBuilder::Load(job.processor, job.limits, style));
//     EVENKEEL_ASSIGN_OR_RETURN(SequenceLengths lengths,
//                               builder->Measure(conversation, items, placeholders));
//     Sequence sequence;  // keeps its memory from one sample to the next
//     EVENKEEL_RETURN_IF_ERROR(builder->Build(conversation, items, placeholders, sequence));
//
// Thread safety: all members are const and may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/conversation.h"
#include "core/digest.h"
#include "core/job.h"
#include "core/measure.h"
#include "core/words.h"
#include "preprocess/families/family.h"
#include "preprocess/processor.h"
#include "preprocess/text/tokenizer.h"

namespace evenkeel::preprocess {

// How media appear in a sequence: the styles of all families of a processor together.
struct SequenceStyle {
  std::vector<MediumStyle> media;  // at most one for each medium
  uint32_t merge_size = 1;         // of the grids of media with `mrope`; positive
  // Qwen2.5-VL: grids of a video are tokens_per_second * second_per_grid positions apart in time.
  // 0 (Qwen2-VL): they are 1 apart.
  uint32_t tokens_per_second = 0;
  bool after_time = false;            // the Omni models: PositionRules
  bool shares_end_positions = false;  // likewise
};

// How an item appears in the sequence: MediaFamily::Placeholders.
using ItemPlaceholders = std::vector<PlaceholderRun>;

class SequenceBuilder {
 public:
  // Reads spec.tokenizer; uses spec.{added_tokens, chat, system, truncate} and limits.{max_text_bytes,
  // max_llm_length}. InvalidArgument: unknown chat style, a system prompt without chat turns, a mark or
  // placeholder that is not a special token of the tokenizer (the message names the token and
  // processor.added_tokens). NotFound: no tokenizer.json.
  // `python` writes the chats of a job without a style, if it renders; may be null.
  static absl::StatusOr<std::unique_ptr<SequenceBuilder>> Load(
      const ProcessorSpec& spec, const Limits& limits, const SequenceStyle& style,
      std::shared_ptr<PythonProcesses> python = nullptr);
  virtual ~SequenceBuilder() = default;

  // `items`: the sample's, in the order in which the conversation names them; `placeholders`: one element for
  // each. InvalidArgument: a medium without a style, an item that is named twice, never or with another
  // medium, text that is not UTF-8. ResourceExhausted: more than limits.max_llm_length tokens or
  // limits.max_text_bytes. Internal: runs that do not add up to the item's output_rows.
  virtual absl::StatusOr<SequenceLengths> Measure(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const ItemPlaceholders> placeholders) const = 0;

  // As Measure; Internal also: a grid whose merged size differs from its run's rows. After an error `out` is
  // undefined.
  virtual absl::Status Build(const Conversation& conversation, std::span<const SampleItem> items,
                             std::span<const ItemPlaceholders> placeholders, Sequence& out) const = 0;

  // The token that pads sequences.
  virtual int64_t pad_token() const = 0;
  // True if items of `medium` have positions on a grid, so that their tokens do not simply count up.
  virtual bool has_grid_positions(Medium medium) const = 0;
  virtual const Tokenizer& tokenizer() const = 0;

  // Adds everything that ids, labels and positions depend on, except the limits.
  virtual void AddTo(CanonicalText& text) const = 0;
};

}  // namespace evenkeel::preprocess
