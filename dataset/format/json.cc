// A recursive-descent parser that appends every value to one flat list, parents before their children.
#include "dataset/format/json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/utf8.h"

namespace evenkeel::dataset {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

class JsonDocument::Parser {
 public:
  Parser(std::string_view text, uint32_t max_depth, JsonDocument& into)
      : text_(text),
        max_depth_(max_depth),
        values_(Emptied(into.values_)),
        unescaped_(Emptied(into.unescaped_)),
        keys_(into.keys_) {}

  absl::Status Parse() {
    if (size_t bad = ValidUtf8Prefix(text_); bad != text_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("not UTF-8 at byte ", bad));
    }
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    // An unescaped string is never longer than its escaped form, so this buffer never moves and views of it
    // stay valid.
    if (text_.find('\\') != std::string_view::npos) unescaped_.reserve(text_.size());
    EVENKEEL_RETURN_IF_ERROR(Value(0, std::string_view()));
    SkipSpace();
    if (at_ != text_.size()) return Error("text after the JSON value");
    return absl::OkStatus();
  }

 private:
  absl::Status Error(std::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON, byte ", at_, ": ", absl::string_view(why.data(), why.size())));
  }
  absl::Status TooDeep() const {
    return absl::ResourceExhaustedError(
        absl::StrCat("JSON, byte ", at_, ": nested deeper than limits.max_json_depth ", max_depth_));
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  // Adds a value and the values inside it.
  absl::Status Value(uint32_t depth, std::string_view key) {
    const size_t number = values_.size();
    if (number == kMaxJsonValues) return Error("too many values");
    values_.push_back({.key = key});
    SkipSpace();
    std::string_view text;
    EVENKEEL_ASSIGN_OR_RETURN(const JsonValue::Kind kind, Content(depth, text));
    values_[number].kind = kind;
    values_[number].text = text;
    values_[number].extent = static_cast<uint32_t>(values_.size() - number);
    return absl::OkStatus();
  }

  absl::StatusOr<JsonValue::Kind> Content(uint32_t depth, std::string_view& text) {
    switch (Peek()) {
      case '{':
        EVENKEEL_RETURN_IF_ERROR(Object(depth));
        return JsonValue::Kind::kObject;
      case '[':
        EVENKEEL_RETURN_IF_ERROR(Array(depth));
        return JsonValue::Kind::kArray;
      case '"':
        EVENKEEL_RETURN_IF_ERROR(String(text));
        return JsonValue::Kind::kString;
      case 't':
        EVENKEEL_RETURN_IF_ERROR(Literal("true", text));
        return JsonValue::Kind::kBool;
      case 'f':
        EVENKEEL_RETURN_IF_ERROR(Literal("false", text));
        return JsonValue::Kind::kBool;
      case 'n':
        EVENKEEL_RETURN_IF_ERROR(Literal("null", text));
        return JsonValue::Kind::kNull;
      case 'N':
        EVENKEEL_RETURN_IF_ERROR(Literal("NaN", text));
        return JsonValue::Kind::kNumber;
      default:
        EVENKEEL_RETURN_IF_ERROR(Number(text));
        return JsonValue::Kind::kNumber;
    }
  }

  absl::Status Literal(std::string_view word, std::string_view& out) {
    if (text_.substr(at_, word.size()) != word) return Error("not a JSON value");
    at_ += word.size();
    out = word;
    return absl::OkStatus();
  }

  absl::Status Digits() {
    if (!IsDigit(Peek())) return Error("not a JSON value");
    while (IsDigit(Peek())) ++at_;
    return absl::OkStatus();
  }

  absl::Status Number(std::string_view& out) {
    size_t begin = at_;
    Take('-');
    if (Peek() == 'I') {
      EVENKEEL_RETURN_IF_ERROR(Literal("Infinity", out));
      out = text_.substr(begin, at_ - begin);
      return absl::OkStatus();
    }
    if (!Take('0')) EVENKEEL_RETURN_IF_ERROR(Digits());
    if (Take('.')) EVENKEEL_RETURN_IF_ERROR(Digits());
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      EVENKEEL_RETURN_IF_ERROR(Digits());
    }
    out = text_.substr(begin, at_ - begin);
    return absl::OkStatus();
  }

  absl::Status Hex4(uint32_t& out) {
    out = 0;
    for (int i = 0; i < 4; ++i) {
      char c = Peek();
      uint32_t digit;
      if (IsDigit(c)) {
        digit = static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<uint32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<uint32_t>(c - 'A' + 10);
      } else {
        return Error("\\u needs four hexadecimal digits");
      }
      out = out << 4 | digit;
      ++at_;
    }
    return absl::OkStatus();
  }

  absl::Status Unicode() {
    uint32_t unit = 0;
    EVENKEEL_RETURN_IF_ERROR(Hex4(unit));
    if (unit >= 0xDC00 && unit <= 0xDFFF) return Error("a lone low surrogate");
    if (unit >= 0xD800 && unit <= 0xDBFF) {
      uint32_t low = 0;
      if (!Take('\\') || !Take('u')) return Error("a lone high surrogate");
      EVENKEEL_RETURN_IF_ERROR(Hex4(low));
      if (low < 0xDC00 || low > 0xDFFF) return Error("a lone high surrogate");
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(unit, unescaped_);
    return absl::OkStatus();
  }

  // A view of the text if the string has no escapes, otherwise of `unescaped_`.
  absl::Status String(std::string_view& out) {
    ++at_;  // skips the quote
    size_t run = at_;
    const size_t begin = unescaped_.size();
    bool escaped = false;
    for (;;) {
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<uint8_t>(text_[at_]) >= 0x20) {
        ++at_;
      }
      if (at_ == text_.size()) return Error("the text ends inside a string");
      const std::string_view plain = text_.substr(run, at_ - run);
      if (Take('"')) {
        if (escaped) unescaped_.append(plain);
        out = escaped ? std::string_view(unescaped_).substr(begin) : plain;
        return absl::OkStatus();
      }
      if (!Take('\\')) return Error("a control character inside a string");
      escaped = true;
      unescaped_.append(plain);
      EVENKEEL_RETURN_IF_ERROR(Escape());
      run = at_;
    }
  }

  absl::Status Escape() {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    char c = Peek();
    if (size_t i = kNames.find(c); c != '\0' && i != std::string_view::npos) {
      unescaped_.push_back(kValues[i]);
      ++at_;
      return absl::OkStatus();
    }
    if (Take('u')) return Unicode();
    return Error("unknown escape");
  }

  absl::Status Array(uint32_t depth) {
    if (depth >= max_depth_) return TooDeep();
    ++at_;
    SkipSpace();
    if (Take(']')) return absl::OkStatus();
    for (;;) {
      EVENKEEL_RETURN_IF_ERROR(Value(depth + 1, std::string_view()));
      SkipSpace();
      if (Take(']')) return absl::OkStatus();
      if (!Take(',')) return Error("expected ',' or ']'");
    }
  }

  absl::Status Object(uint32_t depth) {
    const size_t first = values_.size();
    if (depth >= max_depth_) return TooDeep();
    ++at_;
    SkipSpace();
    if (Take('}')) return absl::OkStatus();
    for (;;) {
      SkipSpace();
      if (Peek() != '"') return Error("expected a key");
      std::string_view key;
      EVENKEEL_RETURN_IF_ERROR(String(key));
      SkipSpace();
      if (!Take(':')) return Error("expected ':'");
      EVENKEEL_RETURN_IF_ERROR(Value(depth + 1, key));
      SkipSpace();
      if (Take('}')) return UniqueKeys(first);
      if (!Take(',')) return Error("expected ',' or '}'");
    }
  }

  // JSON readers differ on which of two equal keys counts, so both are refused. Sorting keeps the check from
  // being quadratic.
  absl::Status UniqueKeys(size_t first) {
    Emptied(keys_);
    for (size_t i = first; i < values_.size(); i += values_[i].extent) keys_.push_back(values_[i].key);
    std::sort(keys_.begin(), keys_.end());
    auto twice = std::adjacent_find(keys_.begin(), keys_.end());
    if (twice == keys_.end()) return absl::OkStatus();
    return Error(absl::StrCat("key '", Printable(*twice), "' is repeated"));
  }

  const std::string_view text_;
  const uint32_t max_depth_;
  std::vector<JsonValue>& values_;
  std::string& unescaped_;
  std::vector<std::string_view>& keys_;
  size_t at_ = 0;
};

const JsonValue* JsonValue::Find(std::string_view name) const {
  if (!is_object()) return nullptr;
  for (const JsonValue& value : values()) {
    if (value.key == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<const JsonValue*> JsonDocument::Parse(std::string_view text, uint32_t max_depth) {
  EVENKEEL_RETURN_IF_ERROR(Parser(text, max_depth, *this).Parse());
  return values_.data();
}

}  // namespace evenkeel::dataset
