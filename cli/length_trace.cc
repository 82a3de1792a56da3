#include "cli/length_trace.h"

#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/status.h"

namespace evenkeel::cli {
namespace {

absl::Status BadCell(const std::string& path, size_t line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", why));
}

absl::Status AddColumn(absl::string_view name, absl::string_view cell, SampleLengths& sample) {
  for (absl::string_view word : absl::StrSplit(cell, absl::ByAnyChar(" \r\t"), absl::SkipEmpty())) {
    uint32_t length = 0;
    if (!absl::SimpleAtoi(word, &length)) {
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' in column ", name, " is no length"));
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

uint64_t NextRandom(uint64_t& state) {  // SplitMix64
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

absl::StatusOr<std::vector<SampleLengths>> ReadLengthTrace(const std::string& path) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string line;
  std::getline(in, line);
  std::vector<std::string> columns = absl::StrSplit(line, ',');
  bool has_llm = false;
  for (std::string& column : columns) {
    column = std::string(absl::StripAsciiWhitespace(column));
    has_llm |= column == "llm";
    if (column == "llm" || column == "vision" || column == "audio") continue;
    return BadCell(path, 1, absl::StrCat("unknown column '", column, "'; known are llm, vision, audio"));
  }
  if (!has_llm) return BadCell(path, 1, "no column 'llm'");
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
    return absl::InvalidArgumentError(absl::StrCat("the trace has ", trace.size(), " samples, ", count,
                                                   " are asked for: fewer ranks or samples per rank, or a "
                                                   "longer trace"));
  }
  for (size_t i = 0; seed != 0 && i < count; ++i) {
    std::swap(trace[i], trace[i + NextRandom(seed) % (trace.size() - i)]);
  }
  trace.resize(count);
  return trace;
}

absl::StatusOr<std::vector<SampleLengths>> DrawWithRepetition(const std::vector<SampleLengths>& trace,
                                                              size_t count, uint64_t seed) {
  if (trace.empty()) return absl::InvalidArgumentError("the trace has no samples");
  std::vector<SampleLengths> drawn;
  drawn.reserve(count);
  for (size_t i = 0; i < count; ++i) drawn.push_back(trace[NextRandom(seed) % trace.size()]);
  return drawn;
}

}  // namespace evenkeel::cli
