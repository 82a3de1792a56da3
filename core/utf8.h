// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel {

// Bytes of the longest beginning of `text` that is UTF-8: text.size() where all of it is.
size_t ValidUtf8Prefix(std::string_view text);
inline bool IsUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }
// Appends a scalar value; it must not be a surrogate and not above U+10FFFF.
void AppendUtf8(uint32_t scalar, std::string& out);
// `text` fit for a message: control characters and bytes that are not UTF-8 as \xNN, at most `limit` bytes.
std::string Printable(std::string_view text, size_t limit = 200);

}  // namespace evenkeel
