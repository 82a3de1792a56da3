// A strict JSON reader (RFC 8259) for text that nobody vouches for: UTF-8, bounded depth, bounded number of
// values, no duplicate keys, nothing after the value. Numbers are kept as written; nothing here computes with
// them.
//
//   absl::StatusOr<JsonValue> value = ParseJson(text, 64);
//   if (const JsonValue* messages = value->Find("messages"); messages != nullptr && messages->is_array()) ...
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace evenkeel::dataset {

// More values than this in one text is refused: a value costs some hundred bytes of memory, a "[]," costs
// three.
inline constexpr uint64_t kMaxJsonValues = 1 << 20;

class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string text;               // kString: decoded UTF-8; kNumber: as written; kBool: "true", "false"
  std::vector<JsonValue> values;  // kArray: elements; kObject: parallel to keys
  std::vector<std::string> keys;

  bool is_null() const { return kind == Kind::kNull; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  // The member of an object, or null.
  const JsonValue* Find(std::string_view key) const;
};

// InvalidArgument: what is wrong, with the byte offset; ResourceExhausted: deeper than `max_depth`.
absl::StatusOr<JsonValue> ParseJson(std::string_view text, uint32_t max_depth);

}  // namespace evenkeel::dataset
