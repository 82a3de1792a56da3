// White space at the ends of a turn, as Python's str.strip() takes it away.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "core/conversation.h"

namespace evenkeel {

// `text` without the characters for which Python's str.isspace() holds at its ends. Bytes that are not UTF-8
// are no white space.
std::string_view Trimmed(std::string_view text);

// `turn` without white space before its first and after its last character; media count as characters.
Turn Trimmed(const Turn& turn);

}  // namespace evenkeel
