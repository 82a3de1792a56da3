// Parses CSV traces of lengths and draws samples from them.
#include "cli/length_trace.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "reorder/keyed_shuffle.h"

namespace evenkeel::cli {
namespace {

absl::Status BadCell(const std::string& path, size_t line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", why));
}

absl::Status AddColumn(absl::string_view name, absl::string_view cell, SampleLengths& sample) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(cell, absl::ByAnyChar(" \r\t"), absl::SkipEmpty());
  if (name == "llm" && words.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(words.size(), " lengths in column llm; expected one, that of the whole sequence"));
  }
  for (absl::string_view word : words) {
    uint32_t length = 0;
    if (!absl::SimpleAtoi(word, &length)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", ShortText({word.data(), word.size()}), "' in column ", name,
                       " is not a length: expected a whole number from 0 to 2^32 - 1"));
    }
    if (name == "llm") {
      sample.llm_length = length;
    } else if (name == "vision") {
      sample.items.push_back({Medium::kImage, {length, length, length / 4 + (length % 4 != 0)}});
    } else {
      sample.items.push_back({Medium::kAudio, {length, length, length / 2 + length % 2}});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReadColumns(const std::string& path, absl::string_view line) {
  absl::ConsumePrefix(&line, "\xef\xbb\xbf");  // a byte order mark, which spreadsheets write
  std::vector<std::string> columns;
  for (absl::string_view cell : absl::StrSplit(line, ',')) {
    const std::string column(absl::StripAsciiWhitespace(cell));
    if (column != "llm" && column != "vision" && column != "audio") {
      return BadCell(path, 1,
                     absl::StrCat("unknown column '", ShortText(column), "'; expected llm, vision, audio"));
    }
    if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
      return BadCell(path, 1, absl::StrCat("column '", column, "' is listed twice"));
    }
    columns.push_back(column);
  }
  if (std::find(columns.begin(), columns.end(), "llm") == columns.end()) {
    return BadCell(path, 1, "no column 'llm'");
  }
  return columns;
}

}  // namespace

absl::StatusOr<std::vector<SampleLengths>> ReadLengthTrace(const std::string& path) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string line;
  if (!std::getline(in, line)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a CSV file with the header llm,vision,audio"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<std::string> columns, ReadColumns(path, line));
  std::vector<SampleLengths> trace;
  for (size_t number = 2; std::getline(in, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    if (cells.size() != columns.size()) {
      return BadCell(path, number, absl::StrCat(cells.size(), " cells for ", columns.size(), " columns"));
    }
    SampleLengths& sample = trace.emplace_back();
    for (size_t c = 0; c < cells.size(); ++c) {
      const absl::Status added = AddColumn(columns[c], cells[c], sample);
      if (!added.ok()) return BadCell(path, number, added.message());
    }
  }
  return trace;
}

absl::StatusOr<std::vector<SampleLengths>> DrawFromTrace(std::vector<SampleLengths> trace, size_t count,
                                                         uint64_t seed) {
  if (count > trace.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the trace has ", trace.size(), " samples, but ", count,
                                                   " are needed; use fewer ranks or samples per rank, a "
                                                   "longer trace, or --samples N, which draws N samples "
                                                   "with repetition"));
  }
  reorder::KeyedNumbers numbers(seed);
  for (size_t i = 0; seed != 0 && i < count; ++i) {
    std::swap(trace[i], trace[i + numbers.Next() % (trace.size() - i)]);
  }
  trace.resize(count);
  return trace;
}

absl::StatusOr<std::vector<SampleLengths>> DrawWithRepetition(const std::vector<SampleLengths>& trace,
                                                              size_t count, uint64_t seed) {
  if (trace.empty()) return absl::InvalidArgumentError("the trace has no samples");
  std::vector<SampleLengths> drawn;
  drawn.reserve(count);
  reorder::KeyedNumbers numbers(seed);
  for (size_t i = 0; i < count; ++i) drawn.push_back(trace[numbers.Next() % trace.size()]);
  return drawn;
}

absl::StatusOr<std::vector<SampleLengths>> DrawStep(std::vector<SampleLengths> trace, size_t count,
                                                    size_t repeated, uint64_t seed) {
  return repeated > 0 ? DrawWithRepetition(trace, repeated, seed)
                      : DrawFromTrace(std::move(trace), count, seed);
}

}  // namespace evenkeel::cli
