// The fast path of `chat: template`: templates that checkpoints publish, and the hand-written style that writes the
// same text.
//
// A template is known by the digest of its exact text. A style writes conversations of the plain shape alone: an
// optional system's turn, then users and assistants, a user first, each with at most one text that spells no special token and
// none that the template looks for; no media, tools, documents or other members. All others are the template's
// (templated_chat.h), and so are all errors. Text, special tokens and trained ranges are the same on both ways; only
// their time differs.
//
// Example:
//     const KnownTemplate* known = KnownTemplateOf(source);
//     StyledText styled;
//     if (known != nullptr && FitsTokenizer(*known, tokenizer) &&
//         WriteInStyle(*known, tokenizer.special_tokens(), conversation, /*system=*/"", max_text_bytes, styled)) {
//       return styled.text;
//     }
//
// Thread safety: the functions may be called from many threads.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/conversation.h"
#include "preprocess/text/chat_template.h"
#include "preprocess/text/rendering.h"
#include "preprocess/text/tokenizer.h"

namespace evenkeel::preprocess {

struct KnownTemplate {
  std::string_view digest;  // of the template's text, in hexadecimal digits (core/digest.h)
  const ChatStyle* style;
  std::string_view default_system;  // written where a conversation has no system prompt; empty: nothing
  bool has_system = true;           // it accepts a system prompt
  std::span<const std::string_view> removed = {};  // texts with which it removes parts of an answer
};

struct StyledText {
  std::string text;
  std::vector<TextRange> answers;  // of each turn what is trained; empty if it is not an assistant's
};

// Null: the template is unknown.
const KnownTemplate* KnownTemplateOf(std::string_view source);

// False if the style's special tokens are not those of the tokenizer, which the template writes or labels end at.
bool FitsTokenizer(const KnownTemplate& known, const Tokenizer& tokenizer);

// False if the conversation is left to the template; `out` is undefined then. `system`: the job's system prompt.
// `max_text_bytes`: of the template's limits.
bool WriteInStyle(const KnownTemplate& known, std::span<const std::string> special_tokens,
                  const Conversation& conversation, std::string_view system, uint64_t max_text_bytes,
                  StyledText& out);

}  // namespace evenkeel::preprocess
