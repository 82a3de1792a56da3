// Validates, encodes and shortens UTF-8 text.
#include "core/utf8.h"

#include "absl/strings/str_format.h"

namespace evenkeel {
namespace {

// The length of the UTF-8 sequence with which `text` begins; 0 if it is not valid (table 3-7 of the Unicode
// standard).
size_t SequenceLength(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  uint8_t first = byte(0);
  if (first < 0x80) return 1;
  size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  uint8_t second = byte(1);
  if (first == 0xE0 && second < 0xA0) return 0;  // overlong
  if (first == 0xED && second > 0x9F) return 0;  // surrogates
  if (first == 0xF0 && second < 0x90) return 0;  // overlong
  if (first == 0xF4 && second > 0x8F) return 0;  // above U+10FFFF
  return length;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t length = SequenceLength(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return at;
}

void AppendUtf8(uint32_t scalar, std::string& out) {
  auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (scalar < 0x80) {
    put(scalar);
  } else if (scalar < 0x800) {
    put(0xC0 | (scalar >> 6));
    put(0x80 | (scalar & 0x3F));
  } else if (scalar < 0x10000) {
    put(0xE0 | (scalar >> 12));
    put(0x80 | ((scalar >> 6) & 0x3F));
    put(0x80 | (scalar & 0x3F));
  } else {
    put(0xF0 | (scalar >> 18));
    put(0x80 | ((scalar >> 12) & 0x3F));
    put(0x80 | ((scalar >> 6) & 0x3F));
    put(0x80 | (scalar & 0x3F));
  }
}

// Writes control characters and invalid bytes as \xNN, so that a damaged name cannot change the terminal or
// split a log line.
std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    if (out.size() >= limit) return out + "...";
    size_t length = SequenceLength(text.substr(at));
    uint8_t first = static_cast<uint8_t>(text[at]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      out += absl::StrFormat("\\x%02x", first);
      at += 1;
    } else {
      out.append(text.substr(at, length));
      at += length;
    }
  }
  return out;
}

}  // namespace evenkeel
