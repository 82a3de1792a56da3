// A strict JSON reader (RFC 8259) for untrusted text: UTF-8, bounded depth, bounded number of values, no
// duplicate keys, nothing after the value. It accepts two extensions, because Python reads and writes them: a
// byte order mark before the value, and the numbers NaN, Infinity and -Infinity, which are frequent in
// metadata next to a chat. Numbers are kept as written; nothing here computes with them.
//
// Example:
//     JsonDocument document;  // reuses its memory for the next text
//     EVENKEEL_ASSIGN_OR_RETURN(const JsonValue* root, document.Parse(text, 64));
//     if (const JsonValue* messages = root->Find("messages"); messages != nullptr && messages->is_array()) {
//       for (const JsonValue& message : messages->values()) Use(message);
//     }
// Thread safety: none; a document belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace evenkeel::dataset {

// A text with more values is refused: a value costs 40 bytes of memory, but "[]," only three bytes of text.
inline constexpr uint64_t kMaxJsonValues = 1 << 20;

// A value of a document. The values inside it follow it in memory.
class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  class Iterator {
   public:
    explicit Iterator(const JsonValue* at) : at_(at) {}
    const JsonValue& operator*() const { return *at_; }
    Iterator& operator++() {
      at_ += at_->extent;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const JsonValue* at_;
  };
  struct Values {
    Iterator first, last;
    Iterator begin() const { return first; }
    Iterator end() const { return last; }
    bool empty() const { return first == last; }
  };

  std::string_view key;   // its key if it is a member of an object
  std::string_view text;  // kString: decoded UTF-8; kNumber, kBool: as written
  uint32_t extent = 1;    // number of values: itself and those inside it
  Kind kind = Kind::kNull;

  bool is_null() const { return kind == Kind::kNull; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  // The elements of an array or members of an object; empty for other values.
  Values values() const { return {Iterator(this + 1), Iterator(this + extent)}; }
  // The member of an object, or null.
  const JsonValue* Find(std::string_view name) const;
};

class JsonDocument {
 public:
  // Returns the root, valid until the next call; its strings are views of `text` and of the document.
  // InvalidArgument: the error and its byte offset; ResourceExhausted: deeper than `max_depth`.
  absl::StatusOr<const JsonValue*> Parse(std::string_view text, uint32_t max_depth);

 private:
  class Parser;
  std::vector<JsonValue> values_;
  std::string unescaped_;               // strings with escapes
  std::vector<std::string_view> keys_;  // keys of one object
};

}  // namespace evenkeel::dataset
