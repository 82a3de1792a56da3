// A conversation as the checkpoint's own template writes it, and which parts of the text are trained.
//
// The template gets roles, contents and calls of tools as the sample has them, with `{"type": "image"}` in
// place of a medium. The medium's position in the text is then found by the token that its processor replaces
// (MediumStyle::in_template). A template that accepts only texts gets that token in the text. Where a medium has a
// template of its own (MediumStyle::own_template), conversations with it are written by that one, from parts.
//
// What is trained (processor.labels): the template's generation blocks, if it has them. A block belongs to the turn that it
// begins in, and is trained as a whole. Otherwise an
// assistant's turn begins where the rendering of the turns before it, with a generation prompt, ends, and
// extends to the last special token of the turn; this requires that the rendering of the first turns is a
// prefix of the rendering of more turns. If the template removes the beginning of a turn (reasoning) once
// others follow it, the rest of the turn is found by its end.
//
// With a class in Python that writes chats (PythonDescription::renders), the class takes the template's place and says what
// is trained.
//
// Conversations of the plain shape are written by a style of the same form if the template is a known one
// (known_templates.h), several times as fast and to the same text and ranges.
//
// It has no notion of tokens (sequence_builder.h).
//
// Thread safety: all members are const and may be called from many threads.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/conversation.h"
#include "core/digest.h"
#include "core/job.h"
#include "preprocess/families/family.h"
#include "preprocess/python_processes.h"
#include "preprocess/text/chat_template.h"
#include "preprocess/text/known_templates.h"
#include "preprocess/text/tokenizer.h"

namespace evenkeel::preprocess {

// A trained stretch of a text, and the weight of its tokens' loss; positive.
struct TrainedRange : TextRange {
  float weight = 1;
};

struct TemplatedText {
  std::string text;
  std::vector<uint64_t> spelled;      // ascending offsets where the sample's own text spells a special token
  std::vector<TrainedRange> trained;  // in ascending order
  bool by_blocks = false;             // `trained` are the template's generation blocks
};

class TemplatedChat {
 public:
  // Reads the template of spec.tokenizer; uses spec.system, spec.labels and spec.date. InvalidArgument: there is
  // no template, or it is invalid; FailedPrecondition: it writes the date, and the job gives none.
  // With a `python` that renders, only spec.system and spec.labels count; empty, assistant and all are the labels that
  // it can have.
  static absl::StatusOr<std::unique_ptr<TemplatedChat>> Load(
      const ProcessorSpec& spec, const Tokenizer& tokenizer, std::span<const MediumStyle> media,
      const Limits& limits, std::shared_ptr<PythonProcesses> python = nullptr);

  // InvalidArgument: the template fails (with the turn if it is known), or does not determine what is
  // trained. ResourceExhausted: the template exceeds its limits.
  absl::Status Write(const Conversation& conversation, TemplatedText& out) const;

  void AddTo(CanonicalText& text) const;

 private:
  TemplatedChat() = default;
  // The conversation as JSON. `as_parts`: contents are lists also where they are one text.
  std::string JsonOf(const Conversation& conversation, bool with_system, bool as_parts) const;
  absl::Status WriteByPython(const std::string& json, TemplatedText& out) const;
  absl::Status Probe();
  // The template of a medium of the conversation that has one of its own; null: none has.
  const ChatTemplate* OwnTemplate(const Conversation& conversation) const;
  void AppendContent(const Turn& turn, bool as_parts, std::string& out) const;
  // `as_parts`: contents are lists also where they are one text.
  void AppendMessages(const Conversation& conversation, bool with_system, bool as_parts,
                      std::string& out) const;
  // Adds what is trained of the conversation's turns; `add_turn` adds one turn's, with this weight.
  absl::Status FindTrained(const Conversation& conversation, TemplatedText& out,
                           absl::FunctionRef<absl::Status(size_t turn, float weight)> add_turn) const;
  absl::Status FindTrainedByTemplate(const ChatTemplate& chat_template, const EvenkeelChat& chat,
                                     const Conversation& conversation, size_t turns_before,
                                     std::span<const TextRange> blocks, TemplatedText& out) const;
  absl::StatusOr<TextRange> RangeOfTurn(const ChatTemplate& chat_template, const EvenkeelChat& chat,
                                        size_t message, size_t num_messages,
                                        const TemplatedText& whole) const;
  bool HasBlocks() const;  // one of the templates has generation blocks
  uint64_t LastSpecialEnd(std::string_view text, std::span<const uint64_t> spelled, TextRange within) const;

  std::shared_ptr<PythonProcesses> python_;  // that renders; null: a template does
  std::string source_, source_tool_use_;
  std::unique_ptr<ChatTemplate> default_;
  const KnownTemplate* known_ = nullptr;    // of default_, if a style writes its plain conversations
  std::unique_ptr<ChatTemplate> tool_use_;  // the template named tool_use; null if there is none
  std::map<Medium, std::unique_ptr<ChatTemplate>> of_media_;  // those that have one of their own
  std::vector<std::string> special_tokens_;
  std::vector<MediumStyle> media_;
  std::string system_, labels_, date_;  // labels_: empty for assistants
  uint64_t max_text_bytes_ = 0;
  bool takes_weights_ = false;  // of turns, which the data give
  bool takes_texts_ = true;     // the template accepts a content that is a string
  bool takes_parts_ = true;     // ... that is a list of parts
};

}  // namespace evenkeel::preprocess
