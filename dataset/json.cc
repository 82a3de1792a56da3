#include "dataset/json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/utf8.h"

namespace evenkeel::dataset {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(std::string_view text, uint32_t max_depth) : text_(text), max_depth_(max_depth) {}

  absl::StatusOr<JsonValue> Parse() {
    if (size_t bad = ValidUtf8Prefix(text_); bad != text_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("not UTF-8 at byte ", bad));
    }
    JsonValue value;
    EVENKEEL_RETURN_IF_ERROR(Value(0, value));
    SkipSpace();
    if (at_ != text_.size()) return Error("text after the JSON value");
    return value;
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

  absl::Status Value(uint32_t depth, JsonValue& out) {
    if (++num_values_ > kMaxJsonValues) return Error("too many values");
    SkipSpace();
    switch (Peek()) {
      case '{':
        return Object(depth, out);
      case '[':
        return Array(depth, out);
      case '"':
        out.kind = JsonValue::Kind::kString;
        return String(out.text);
      case 't':
        return Literal("true", JsonValue::Kind::kBool, out);
      case 'f':
        return Literal("false", JsonValue::Kind::kBool, out);
      case 'n':
        return Literal("null", JsonValue::Kind::kNull, out);
      default:
        return Number(out);
    }
  }

  absl::Status Literal(std::string_view word, JsonValue::Kind kind, JsonValue& out) {
    if (text_.substr(at_, word.size()) != word) return Error("not a JSON value");
    at_ += word.size();
    out.kind = kind;
    if (kind == JsonValue::Kind::kBool) out.text = std::string(word);
    return absl::OkStatus();
  }

  absl::Status Digits() {
    if (!IsDigit(Peek())) return Error("not a JSON value");
    while (IsDigit(Peek())) ++at_;
    return absl::OkStatus();
  }

  absl::Status Number(JsonValue& out) {
    size_t begin = at_;
    Take('-');
    if (!Take('0')) EVENKEEL_RETURN_IF_ERROR(Digits());
    if (Take('.')) EVENKEEL_RETURN_IF_ERROR(Digits());
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      EVENKEEL_RETURN_IF_ERROR(Digits());
    }
    out.kind = JsonValue::Kind::kNumber;
    out.text = std::string(text_.substr(begin, at_ - begin));
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

  absl::Status Unicode(std::string& out) {
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
    AppendUtf8(unit, out);
    return absl::OkStatus();
  }

  absl::Status String(std::string& out) {
    ++at_;  // the quote
    for (;;) {
      size_t run = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<uint8_t>(text_[at_]) >= 0x20) {
        ++at_;
      }
      out.append(text_.substr(run, at_ - run));
      if (at_ == text_.size()) return Error("the text ends inside a string");
      if (Take('"')) return absl::OkStatus();
      if (!Take('\\')) return Error("a control character inside a string");
      EVENKEEL_RETURN_IF_ERROR(Escape(out));
    }
  }

  absl::Status Escape(std::string& out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    char c = Peek();
    if (size_t i = kNames.find(c); c != '\0' && i != std::string_view::npos) {
      out.push_back(kValues[i]);
      ++at_;
      return absl::OkStatus();
    }
    if (Take('u')) return Unicode(out);
    return Error("unknown escape");
  }

  absl::Status Array(uint32_t depth, JsonValue& out) {
    if (depth >= max_depth_) return TooDeep();
    out.kind = JsonValue::Kind::kArray;
    ++at_;
    SkipSpace();
    if (Take(']')) return absl::OkStatus();
    for (;;) {
      out.values.emplace_back();
      EVENKEEL_RETURN_IF_ERROR(Value(depth + 1, out.values.back()));
      SkipSpace();
      if (Take(']')) return absl::OkStatus();
      if (!Take(',')) return Error("expected ',' or ']'");
    }
  }

  absl::Status Object(uint32_t depth, JsonValue& out) {
    if (depth >= max_depth_) return TooDeep();
    out.kind = JsonValue::Kind::kObject;
    ++at_;
    SkipSpace();
    if (Take('}')) return absl::OkStatus();
    for (;;) {
      SkipSpace();
      if (Peek() != '"') return Error("expected a key");
      out.keys.emplace_back();
      EVENKEEL_RETURN_IF_ERROR(String(out.keys.back()));
      SkipSpace();
      if (!Take(':')) return Error("expected ':'");
      out.values.emplace_back();
      EVENKEEL_RETURN_IF_ERROR(Value(depth + 1, out.values.back()));
      SkipSpace();
      if (Take('}')) return UniqueKeys(out);
      if (!Take(',')) return Error("expected ',' or '}'");
    }
  }

  // Readers differ on which of two equal keys counts, so neither does. Sorted, so that it costs no quadratic
  // time.
  absl::Status UniqueKeys(const JsonValue& object) const {
    std::vector<std::string_view> keys(object.keys.begin(), object.keys.end());
    std::sort(keys.begin(), keys.end());
    auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice == keys.end()) return absl::OkStatus();
    return Error(absl::StrCat("key '", Printable(*twice), "' twice"));
  }

  std::string_view text_;
  const uint32_t max_depth_;
  size_t at_ = 0;
  uint64_t num_values_ = 0;
};

}  // namespace

const JsonValue* JsonValue::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &values[i];
  }
  return nullptr;
}

absl::StatusOr<JsonValue> ParseJson(std::string_view text, uint32_t max_depth) {
  return Parser(text, max_depth).Parse();
}

}  // namespace evenkeel::dataset
