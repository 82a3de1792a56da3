// Conversation -> segments of text, special tokens and items, before anything is tokenized. Pure.
//
// Adjacent text segments are one text to the tokenizer; they are separate only where training begins or ends.
// Texts are views: of the conversation, of the style and of the job's system prompt. Thread safety: none; a
// rendering belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/conversation.h"

namespace evenkeel::preprocess {

struct Stretch {
  // kMark: a special token of the style. kTextEnd: the tokenizer's end-of-text token.
  enum class Kind : uint8_t { kText, kMark, kTextEnd, kItem };
  Kind kind = Kind::kText;
  bool trained = false;
  std::string_view text;  // kText, kMark
  uint32_t item = 0;      // kItem
  Medium medium = Medium::kText;
};

// Collects segments; keeps its memory from one conversation to the next.
class Rendering {
 public:
  void Clear();
  void Mark(std::string_view token, bool trained = false);
  void TextEnd(bool trained);
  void Text(std::string_view text, bool trained = false);  // ignores an empty text
  void Number(uint32_t number);                            // as decimal digits
  void Item(const Span& span);
  void Content(std::span<const Span> spans, bool trained);  // in order
  // As Content, without the white space at both ends of the whole (Python's `str.strip`).
  void TrimmedContent(std::span<const Span> spans, bool trained);
  std::span<const Stretch> stretches() const { return stretches_; }

 private:
  std::vector<Stretch> stretches_;
};

// A hand-written chat format. Each style is one file with one golden test; rendering.cc lists those that a job can name.
struct ChatStyle {
  std::string_view name;                    // the value of processor.chat
  std::string_view text_begin;              // the token at the beginning of the sequence; empty: none
  std::span<const std::string_view> marks;  // the other special tokens that `render` writes
  bool has_system = true;                   // it can write a system prompt
  bool has_tools = false;                   // it can write tools and calls of tools
  // Why the template fails on a turn, as text after "turn 3 "; empty if it does not. Null: it never fails.
  std::string_view (*refusal)(std::span<const Turn> turns, size_t turn) = nullptr;
  void (*render)(const Conversation& chat, std::string_view system, Rendering& out);
};

extern const ChatStyle kChatMl;      // chat_chatml.cc: Qwen2, Qwen2.5, Qwen3
extern const ChatStyle kQwen2Audio;  // chat_chatml.cc: with numbered audio clips
extern const ChatStyle kInternVl;    // chat_chatml.cc: with a line break after every medium
extern const ChatStyle kLlama3;      // chat_llama3.cc
extern const ChatStyle kGemma;       // chat_gemma.cc
extern const ChatStyle kGemma4;      // chat_gemma4.cc: of known templates alone (known_templates.h)
extern const ChatStyle kMistral;     // chat_mistral.cc: from Mistral Small 3 on
extern const ChatStyle kPixtral;     // chat_mistral.cc
extern const ChatStyle kLlava;       // chat_llava.cc: the template of LLaVA-1.5's processor
extern const ChatStyle kVicuna;      // chat_llava.cc: as LLaVA-1.5 was trained
extern const ChatStyle kPlain;       // rendering.cc

// Renders every turn by `turn`, the job's system prompt as one before them.
void EachTurn(const Conversation& chat, std::string_view system,
              void (*turn)(Role role, std::span<const Span> spans, Rendering& out), Rendering& out);

// A `refusal`: after an optional system turn, users and assistants must alternate, a user first.
std::string_view MustAlternate(std::span<const Turn> turns, size_t turn);

// The word of processor.chat that stands for the checkpoint's own template; it is no style.
inline constexpr std::string_view kTemplateChat = "template";

// InvalidArgument: unknown style; the message names processor.chat and the known styles.
absl::StatusOr<const ChatStyle*> ChatStyleFromName(std::string_view name);

// Renders a conversation into `out`. A conversation marked plain is rendered in the plain style, whatever
// `style` is. `system`: the job's system prompt, used if the conversation does not begin with one of its own.
void Render(const Conversation& conversation, const ChatStyle& style, std::string_view system,
            Rendering& out);

}  // namespace evenkeel::preprocess
