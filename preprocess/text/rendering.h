// Conversation -> stretches: what stands where, before anything is tokenised. Pure.
//
// Adjacent text stretches are one text to the tokenizer; they are apart only where training begins or ends.
// Texts are views: of the conversation, of the style and of the job's system prompt.
// Thread safety: none; a rendering belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/conversation.h"

namespace evenkeel::preprocess {

struct Stretch {
  // kMark: a special token that the style writes. kTextEnd: the tokenizer's own end of a text.
  enum class Kind : uint8_t { kText, kMark, kTextEnd, kItem };
  Kind kind = Kind::kText;
  bool trained = false;
  std::string_view text;  // kText, kMark
  uint32_t item = 0;      // kItem
  Medium medium = Medium::kText;
};

// Collects stretches; its memory is kept from one conversation to the next.
class Rendering {
 public:
  void Clear();
  void Mark(std::string_view token, bool trained = false);
  void TextEnd(bool trained);
  void Text(std::string_view text, bool trained = false);  // nothing where it is empty
  void Number(uint32_t number);                            // as decimal digits
  void Item(const Span& span);
  void Content(std::span<const Span> spans, bool trained);  // in order
  // The same without white space at the ends of the whole: what `str.strip` takes away.
  void TrimmedContent(std::span<const Span> spans, bool trained);
  std::span<const Stretch> stretches() const { return stretches_; }

 private:
  std::vector<Stretch> stretches_;
};

// A way to write the turns of a chat. One style, one file, one golden; named in rendering.cc.
struct ChatStyle {
  std::string_view name;                    // of processor.chat
  std::string_view text_begin;              // the token before all that is rendered; empty: none
  std::span<const std::string_view> marks;  // the other tokens that `render` writes
  bool has_system = true;                   // whether it can write a system prompt
  bool has_tools = false;                   // whether it can write tools, and what turns ask of them
  // Why the template fails on a turn, to be read behind "turn 3 "; empty: it does not. Nothing: on none.
  std::string_view (*refusal)(std::span<const Turn> turns, size_t turn) = nullptr;
  void (*render)(const Conversation& chat, std::string_view system, Rendering& out);
};

extern const ChatStyle kChatMl;      // chat_chatml.cc: Qwen2, Qwen2.5, Qwen3
extern const ChatStyle kQwen2Audio;  // chat_chatml.cc: the same with numbered clips
extern const ChatStyle kInternVl;    // chat_chatml.cc: the same with a line break after every medium
extern const ChatStyle kLlama3;      // chat_llama3.cc
extern const ChatStyle kGemma;       // chat_gemma.cc
extern const ChatStyle kMistral;     // chat_mistral.cc: from Mistral Small 3 on
extern const ChatStyle kPixtral;     // chat_mistral.cc
extern const ChatStyle kLlava;       // chat_llava.cc: the template of LLaVA-1.5's processor
extern const ChatStyle kVicuna;      // chat_llava.cc: as LLaVA-1.5 was trained
extern const ChatStyle kPlain;       // rendering.cc

// A refusal: behind what a system may say first, users and assistants take turns, a user first.
std::string_view MustAlternate(std::span<const Turn> turns, size_t turn);

// InvalidArgument: no such style; names processor.chat.
absl::StatusOr<const ChatStyle*> ChatStyleFromName(std::string_view name);

// Makes `out` the rendering of a conversation. One that is plain is rendered so in any style. `system`: the
// job's, where the conversation does not begin with one of its own.
void Render(const Conversation& conversation, const ChatStyle& style, std::string_view system,
            Rendering& out);

}  // namespace evenkeel::preprocess
