// Conversation -> stretches: what stands where, before anything is tokenised. Pure.
//
// Adjacent text stretches are one text to the tokenizer; they are apart only where training begins or ends.
// Thread safety: needs none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/conversation.h"

namespace evenkeel {

enum class ChatStyle : uint8_t { kChatMl, kPlain };

// InvalidArgument: no such style; names processor.chat.
absl::StatusOr<ChatStyle> ChatStyleFromName(std::string_view name);

struct Stretch {
  enum class Kind : uint8_t { kText, kTurnBegin, kTurnEnd, kTextEnd, kItem };
  Kind kind = Kind::kText;
  bool trained = false;
  std::string_view text;  // kText; a view of the conversation, of `system` or of a constant
  uint32_t item = 0;      // kItem
  Medium medium = Medium::kText;
};

// `conversation` and `system` must outlive the result. A conversation that is plain is rendered so in any
// style.
std::vector<Stretch> Render(const Conversation& conversation, ChatStyle style, std::string_view system);

}  // namespace evenkeel
