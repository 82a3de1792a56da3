// Conversation -> sequence: rendered, tokenised, expanded, labelled, with positions.
//
// It is the whole of what a model's processor does with text: the chat's marks, the placeholders of media,
// which tokens are trained, M-RoPE positions. It is not: media (family.h), padding, packing of sequences.
//
// Chats are written by the styles of rendering.h, one file each, which also say what is trained: what an
// assistant says, and the mark by which it ends its turn. `plain` writes the turns' contents one after
// another, then the end of the text (<|endoftext|>, <|end_of_text|>, <eos> or </s>, whichever the tokenizer
// has first); the text of assistant turns is trained, and the end where the last turn is one. A conversation
// marked plain is rendered so in any style, and all its text is trained.
//
// A medium is its style's begin, output_rows placeholders, end, or several such runs with text between them;
// none of that is ever trained. Text of a sample can not spell a mark or a placeholder:
// docs/decisions/0003-text.md.
//
// A sequence longer than limits.max_llm_length is refused, so that the index leaves its sample out; with
// processor.truncate `text` its end is cut off instead, unless a medium would lose a placeholder.
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

// How media look inside a sequence: the styles of all families of a processor together.
struct SequenceStyle {
  std::vector<MediumStyle> media;  // at most one for each medium
  uint32_t merge_size = 1;         // of the grids of media with `mrope`; positive
  // Qwen2.5-VL: grids of a video are tokens_per_second * second_per_grid positions apart in time.
  // 0, Qwen2-VL: they are 1 apart.
  uint32_t tokens_per_second = 0;
  bool after_time = false;  // the Omni models: see WritePositions
};

// How an item stands in the sequence: MediaFamily::Placeholders.
using ItemPlaceholders = std::vector<PlaceholderRun>;

class SequenceBuilder {
 public:
  // Reads spec.tokenizer; uses spec.{added_tokens, chat, system, truncate} and limits.{max_text_bytes,
  // max_llm_length}. InvalidArgument: unknown chat style, a system prompt without chat turns, a mark or
  // placeholder that is no special token of the tokenizer (the message names the token and
  // processor.added_tokens). NotFound: no tokenizer.json.
  static absl::StatusOr<std::unique_ptr<SequenceBuilder>> Load(const ProcessorSpec& spec,
                                                               const Limits& limits,
                                                               const SequenceStyle& style);
  virtual ~SequenceBuilder() = default;

  // `items` are the sample's, in the order in which the conversation names them; `placeholders` has one
  // element for each. InvalidArgument: a medium without style, an item named twice, never or with another
  // medium, text that is not UTF-8; ResourceExhausted: more than limits.max_llm_length tokens or
  // limits.max_text_bytes; Internal: runs that do not add up to the item's output_rows.
  virtual absl::StatusOr<SequenceLengths> Measure(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const ItemPlaceholders> placeholders) const = 0;

  // As Measure; Internal also: a grid whose merged size is not its run's rows. After an error `out` holds
  // nothing of use.
  virtual absl::Status Build(const Conversation& conversation, std::span<const SampleItem> items,
                             std::span<const ItemPlaceholders> placeholders, Sequence& out) const = 0;

  // The end of a text: what pads sequences.
  virtual int64_t pad_token() const = 0;
  // Whether an item of `medium` has positions on a grid, so that its tokens' are not their numbers.
  virtual bool has_grid_positions(Medium medium) const = 0;
  virtual const Tokenizer& tokenizer() const = 0;

  // Everything that ids, labels and positions depend on, but for the limits.
  virtual void AddTo(CanonicalText& text) const = 0;
};

}  // namespace evenkeel::preprocess
