// Expands a pattern from the left: a list of names grows by the product with each literal and each pair of braces.
#include "cli/braces.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/job_syntax.h"
#include "core/status.h"

namespace evenkeel::cli {
namespace {

using Names = std::vector<std::string>;

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// A number of a range; nullopt: it is not one.
std::optional<int64_t> NumberOf(std::string_view text) {
  const std::string_view digits = text.substr(!text.empty() && text[0] == '-' ? 1 : 0);
  if (digits.empty() ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  int64_t value = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &value)) return INT64_MAX;
  return value;
}

bool IsPadded(std::string_view number) {
  const std::string_view digits = number.substr(number[0] == '-' ? 1 : 0);
  return digits.size() > 1 && digits[0] == '0';
}

class Expander {
 public:
  Expander(std::string_view whole, size_t most) : whole_(whole), most_(most) {}

  absl::StatusOr<Names> Pattern(std::string_view pattern, int depth) {
    if (depth > kMaxBraceDepth) return Wrong(absl::StrCat("braces are nested deeper than ", kMaxBraceDepth));
    Names names = {""};
    size_t start = 0, open = 0;
    int inside = 0;
    for (size_t at = 0; at < pattern.size(); ++at) {
      if (pattern[at] == '\\') {
        ++at;
      } else if (pattern[at] == '{' && inside++ == 0) {
        EVENKEEL_RETURN_IF_ERROR(Multiply({std::string(pattern.substr(start, at - start))}, names));
        open = at + 1;
      } else if (pattern[at] == '}') {
        if (--inside < 0) return Wrong("braces are not balanced");
        if (inside > 0) continue;
        EVENKEEL_ASSIGN_OR_RETURN(const Names inner, Braces(pattern.substr(open, at - open), depth));
        EVENKEEL_RETURN_IF_ERROR(Multiply(inner, names));
        start = at + 1;
      }
    }
    if (inside != 0) return Wrong("braces are not balanced");
    EVENKEEL_RETURN_IF_ERROR(Multiply({std::string(pattern.substr(start))}, names));
    return names;
  }

 private:
  absl::Status Wrong(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat("'", ShortText(whole_), "': ", why));
  }
  absl::Status TooMany() const {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", ShortText(whole_), "': more than ", most_, " names"));
  }

  absl::Status Multiply(const Names& ends, Names& names) const {
    if (ends.size() * names.size() > most_) return TooMany();
    if (BytesOf(names) * ends.size() + BytesOf(ends) * names.size() > kMaxShardPathBytes) return TooMany();
    if (ends.size() == 1) {
      if (ends[0].empty()) return absl::OkStatus();
      for (std::string& name : names) name += ends[0];
      return absl::OkStatus();
    }
    Names out;
    out.reserve(names.size() * ends.size());
    for (const std::string& name : names)
      for (const std::string& end : ends) out.push_back(name + end);
    names = std::move(out);
    return absl::OkStatus();
  }
  static uint64_t BytesOf(const Names& names) {
    return std::accumulate(names.begin(), names.end(), uint64_t{0},
                           [](uint64_t bytes, const std::string& name) { return bytes + name.size(); });
  }

  // The alternatives between two braces.
  absl::StatusOr<Names> Braces(std::string_view inner, int depth) {
    EVENKEEL_ASSIGN_OR_RETURN(std::optional<Names> range, Range(inner));
    if (range) return *std::move(range);
    Names out;
    size_t start = 0;
    int inside = 0;
    bool is_list = false;
    for (size_t at = 0; at <= inner.size(); ++at) {
      const bool ends = at == inner.size();
      if (!ends && inner[at] == '\\')
        ++at;
      else if (!ends && inner[at] == '{')
        ++inside;
      else if (!ends && inner[at] == '}')
        --inside;
      else if (inside == 0 && (ends ? is_list : inner[at] == ',')) {
        EVENKEEL_ASSIGN_OR_RETURN(const Names names, Pattern(inner.substr(start, at - start), depth + 1));
        out.insert(out.end(), names.begin(), names.end());
        if (out.size() > most_) return TooMany();
        start = at + 1;
        is_list = true;
      }
    }
    if (is_list) return out;
    EVENKEEL_ASSIGN_OR_RETURN(out, Pattern(inner, depth + 1));
    for (std::string& name : out) name = absl::StrCat("{", name, "}");
    return out;
  }

  // "1..10", "001..010..3", "a..f"; nullopt: something else.
  absl::StatusOr<std::optional<Names>> Range(std::string_view inner) const {
    const std::vector<std::string> words =
        absl::StrSplit(absl::string_view(inner.data(), inner.size()), "..");
    if (words.size() != 2 && words.size() != 3) return std::nullopt;
    std::optional<int64_t> step = words.size() == 3 ? NumberOf(words[2]) : std::optional<int64_t>(1);
    if (!step) return std::nullopt;
    const bool are_letters = words[0].size() == 1 && words[1].size() == 1 &&
                             kLetters.find(words[0]) != std::string_view::npos &&
                             kLetters.find(words[1]) != std::string_view::npos;
    const auto bound = [&](const std::string& word) {
      return are_letters ? std::optional<int64_t>(kLetters.find(word)) : NumberOf(word);
    };
    const std::optional<int64_t> first = bound(words[0]), last = bound(words[1]);
    if (!first || !last) return std::nullopt;
    constexpr int64_t kMost = 999999999;
    for (int64_t value : {*first, *last, *step})
      if (value > kMost || value < -kMost) return Wrong("a number of a range has more than nine digits");
    const int64_t by = *step == 0 ? 1 : std::abs(*step), count = std::abs(*last - *first) / by + 1;
    if (static_cast<uint64_t>(count) > most_) return TooMany();
    const bool is_padded = !are_letters && (IsPadded(words[0]) || IsPadded(words[1]));
    const int width = is_padded ? static_cast<int>(std::max(words[0].size(), words[1].size())) : 0;
    Names out;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = *first + (*first < *last ? i * by : -i * by);
      out.push_back(are_letters ? std::string(1, kLetters[value]) : absl::StrFormat("%0*d", width, value));
    }
    return out;
  }

  const std::string_view whole_;
  const size_t most_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandBraces(std::string_view pattern, size_t most) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", ShortText(pattern), "...': a pattern of more than ", kMaxPatternBytes, " bytes"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(Names names, Expander(pattern, most).Pattern(pattern, 0));
  for (std::string& name : names) {
    std::string plain;
    for (size_t i = 0; i < name.size(); ++i) {
      if (name[i] == '\\' && i + 1 < name.size()) ++i;
      plain += name[i];
    }
    name = std::move(plain);
  }
  return names;
}

}  // namespace evenkeel::cli
