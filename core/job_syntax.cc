// Parses numbers with suffixes, lists of ranks and brace ranges, and finds the nearest known word for a
// typing error.
#include "core/job_syntax.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/status.h"

namespace evenkeel {
namespace {

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

struct Suffix {
  std::string_view text;
  uint64_t factor;
};
constexpr Suffix kSuffixes[] = {
    {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"k", 1000}, {"m", 1000000}};

absl::StatusOr<uint32_t> ParseRank(absl::string_view text) {
  uint32_t rank = 0;
  if (!IsDigits({text.data(), text.size()}) || !absl::SimpleAtoi(text, &rank) || rank > kMaxRank) {
    return Invalid("'", ShortText({text.data(), text.size()}), "' is not a rank, a whole number from 0 to ",
                   kMaxRank, "; a list of ranks looks like \"0-3,8\"");
  }
  return rank;
}

// {first..last}; width: digits with leading zeroes, 0 without.
struct Range {
  uint64_t first = 0;
  uint64_t last = 0;
  size_t width = 0;
};

// `text` is what the braces enclose.
absl::StatusOr<Range> ParseRange(std::string_view text) {
  size_t dots = text.find("..");
  std::string_view first = text.substr(0, dots);
  std::string_view last = dots == std::string_view::npos ? "" : text.substr(dots + 2);
  Range range;
  if (!IsDigits(first) || !IsDigits(last) || !absl::SimpleAtoi(View(first), &range.first) ||
      !absl::SimpleAtoi(View(last), &range.last)) {
    return Invalid("'{", ShortText(text), "}' is not a range; write {000..127}");
  }
  if (range.first > range.last) return Invalid("the range '{", ShortText(text), "}' runs backwards");
  bool padded = (first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0');
  if (padded) range.width = std::max(first.size(), last.size());
  return range;
}

std::string Padded(uint64_t value, size_t width) {
  std::string digits = absl::StrCat(value);
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

// Appends `literal` and every number of `range` to every one of `heads`. `pattern_bytes`, the length of the
// pattern, bounds the length of a result.
absl::StatusOr<std::vector<std::string>> Multiply(const std::vector<std::string>& heads,
                                                  std::string_view literal, const Range& range,
                                                  size_t pattern_bytes) {
  uint64_t count =
      range.last - range.first;  // one less than the number of values, so that it cannot overflow
  if (count >= kMaxShards || (count + 1) * heads.size() > kMaxShards ||
      (count + 1) * heads.size() * pattern_bytes > kMaxShardPathBytes) {
    return Invalid("the ranges stand for more than ", kMaxShards, " shards or ", kMaxShardPathBytes >> 20,
                   " MiB of paths");
  }
  std::vector<std::string> out;
  out.reserve(heads.size() * (count + 1));
  for (const std::string& head : heads) {
    for (uint64_t i = 0; i <= count; ++i) {
      out.push_back(absl::StrCat(head, View(literal), Padded(range.first + i, range.width)));
    }
  }
  return out;
}

// Levenshtein's distance: the fewest insertions, deletions and replacements that turn `a` into `b`. Only the
// last row of the table is kept.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::StatusOr<uint64_t> ParseWholeNumber(const std::string& text, bool suffixes) {
  std::string_view digits = text;
  uint64_t factor = 1;
  for (const Suffix& suffix : kSuffixes) {
    if (suffixes && digits.ends_with(suffix.text)) {
      factor = suffix.factor;
      digits.remove_suffix(suffix.text.size());
      break;
    }
  }
  uint64_t value = 0;
  bool plain = IsDigits(digits) && (digits.size() == 1 || digits[0] != '0');
  if (!plain || !absl::SimpleAtoi(View(digits), &value) || __builtin_mul_overflow(value, factor, &value)) {
    return Invalid("expected a whole number of at most 64 bits",
                   suffixes ? " (KiB, MiB, GiB, k and m may follow it)" : "", ", found '", ShortText(text),
                   "'");
  }
  return value;
}

absl::StatusOr<std::vector<uint32_t>> ParseRanks(const std::string& text) {
  std::vector<uint32_t> ranks;
  std::set<uint32_t> seen;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    size_t dash = part.find('-');
    EVENKEEL_ASSIGN_OR_RETURN(uint32_t first, ParseRank(part.substr(0, dash)));
    uint32_t last = first;
    if (dash != absl::string_view::npos) {
      EVENKEEL_ASSIGN_OR_RETURN(last, ParseRank(part.substr(dash + 1)));
    }
    if (first > last) return Invalid("the ranks ", first, "-", last, " run backwards");
    for (uint32_t rank = first; rank <= last; ++rank) {
      if (!seen.insert(rank).second) return Invalid("rank ", rank, " is given twice");
      ranks.push_back(rank);
    }
  }
  return ranks;
}

absl::StatusOr<std::vector<std::string>> ExpandRanges(const std::string& pattern) {
  std::vector<std::string> out = {""};
  std::string_view rest = pattern;
  while (true) {
    size_t open = rest.find_first_of("{}");
    if (open == std::string_view::npos) break;
    size_t close = rest.find('}');
    if (rest[open] == '}' || close == std::string_view::npos) {
      return Invalid("'", ShortText(pattern), "' has an unmatched brace; ranges look like {000..127}");
    }
    EVENKEEL_ASSIGN_OR_RETURN(Range range, ParseRange(rest.substr(open + 1, close - open - 1)));
    EVENKEEL_ASSIGN_OR_RETURN(out, Multiply(out, rest.substr(0, open), range, pattern.size()));
    rest.remove_prefix(close + 1);
  }
  for (std::string& path : out) path.append(rest);
  return out;
}

std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string_view start = word.substr(0, 64);  // no known word is nearly as long
  return *std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return EditDistance(start, a) < EditDistance(start, b);
  });
}

std::string ShortText(std::string_view text) {
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return absl::Utf8SafeCHexEscape(View(text));
  size_t end = kLongest;
  // Does not cut a UTF-8 sequence.
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(absl::Utf8SafeCHexEscape(View(text.substr(0, end))), "...");
}

}  // namespace evenkeel
