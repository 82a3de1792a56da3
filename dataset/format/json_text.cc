// Writes JSON values as Python writes them: separators, escapes, and floats by their shortest representation.
#include "dataset/format/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kMaxDigits = 4300;  // sys.int_info.default_max_str_digits

// Writes like Python's `repr`: the shortest digits that read back as the same number, with an exponent below
// 1e-4 and from 1e16 on.
void AppendDouble(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "NaN";
    return;
  }
  if (std::signbit(value)) out += '-';
  value = std::fabs(value);
  if (std::isinf(value)) {
    out += "Infinity";
    return;
  }
  char buffer[32];
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, end.ptr - buffer);
  const size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    absl::StrAppend(&out, exponent < 0 ? "e-" : "e+", std::abs(exponent) < 10 ? "0" : "", std::abs(exponent));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole + 1) digits.append(whole + 1 - digits.size(), '0');
    out.append(digits, 0, whole).append(1, '.').append(digits, whole);
  }
}

absl::Status AppendNumber(std::string_view text, std::string& out) {
  const bool whole = text.find_first_not_of("-0123456789") == std::string_view::npos;
  if (whole) {
    if (text.size() - (text[0] == '-') > kMaxDigits) {
      return absl::InvalidArgumentError(absl::StrCat("a whole number of more than ", kMaxDigits, " digits"));
    }
    out += text == "-0" ? "0" : text;
    return absl::OkStatus();
  }
  double value = 0;
  // Numbers too large for a double become infinite, as in Python.
  if (!absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value)) {
    return absl::InternalError("internal: a number from the JSON reader cannot be parsed");
  }
  AppendDouble(value, out);
  return absl::OkStatus();
}

// `number(text, out)` appends the text of a number.
template <typename Number>
absl::Status Append(const JsonValue& value, std::string& out, const Number& number) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      out += "null";
      return absl::OkStatus();
    case JsonValue::Kind::kBool:
      out += value.text;
      return absl::OkStatus();
    case JsonValue::Kind::kNumber:
      return number(value.text, out);
    case JsonValue::Kind::kString:
      AppendStringAsPython(value.text, out);
      return absl::OkStatus();
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      break;
  }
  out += value.is_array() ? '[' : '{';
  bool first = true;
  for (const JsonValue& inner : value.values()) {  // depth is bounded by the parser
    if (!first) out += ", ";
    first = false;
    if (value.is_object()) {
      AppendStringAsPython(inner.key, out);
      out += ": ";
    }
    EVENKEEL_RETURN_IF_ERROR(Append(inner, out, number));
  }
  out += value.is_array() ? ']' : '}';
  return absl::OkStatus();
}

}  // namespace

void AppendStringAsPython(std::string_view text, std::string& out) {
  static constexpr std::string_view kValues = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  static constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    if (size_t i = kValues.find(c); i != std::string_view::npos) {
      out.append(1, '\\').append(1, kNames[i]);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out.append("\\u00").append(1, kHex[c >> 4]).append(1, kHex[c & 15]);
    } else {
      out += c;
    }
  }
  out += '"';
}

absl::Status AppendAsPython(const JsonValue& value, std::string& out) {
  return Append(value, out, AppendNumber);
}

void AppendAsWritten(const JsonValue& value, std::string& out) {
  (void)Append(value, out, [](std::string_view text, std::string& to) {
    to += text;
    return absl::OkStatus();
  });
}

}  // namespace evenkeel::dataset
