// Addresses of shards that are not files: "s3://bucket/key", "gs://bucket/key", "az://container/blob",
// "hf://datasets/owner/name@revision/file", "http(s)://...".
//
// Example:
//     IsAddress("s3://photos/train-000.tar");        // true
//     HasPattern("s3://photos/train-*.tar");         // true: stands for the objects that a listing finds
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

namespace evenkeel {

// "scheme" of "scheme://..."; empty for a path.
inline std::string_view SchemeOf(std::string_view text) {
  const size_t colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0) return {};
  for (const char c : text.substr(0, colon)) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!is_letter && !(c >= '0' && c <= '9') && c != '+' && c != '-' && c != '.') return {};
  }
  return text.substr(0, colon);
}

inline bool IsAddress(std::string_view text) { return !SchemeOf(text).empty(); }

// Whether an address has * or ?, which stand for any characters or one character of an object's name.
inline bool HasPattern(std::string_view address) {
  return address.find_first_of("*?") != std::string_view::npos;
}

}  // namespace evenkeel
