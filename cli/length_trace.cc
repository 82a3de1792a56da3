// Parses CSV traces of lengths and draws samples from them.
#include "cli/length_trace.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "reorder/item_phases.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/named_phases.h"

namespace evenkeel::cli {
namespace {

absl::Status BadCell(const std::string& path, size_t line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", why));
}

// A column of the file: its phase, and what an item of it is.
struct Column {
  Phase phase;
  SampleItem item;  // without lengths; not of the llm
};

absl::Status AddCell(const Column& column, absl::string_view cell, SampleLengths& sample) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(cell, absl::ByAnyChar(" \r\t"), absl::SkipEmpty());
  const bool is_llm = column.phase == Phase::kLlm;
  if (is_llm && words.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(words.size(), " lengths in column llm; expected one, that of the whole sequence"));
  }
  const uint32_t rows_per_length = column.item.medium == Medium::kAudio ? 2 : 4;
  for (absl::string_view word : words) {
    uint32_t length = 0;
    if (!absl::SimpleAtoi(word, &length)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", ShortText({word.data(), word.size()}), "' in column ", std::string(column.phase.name()),
          " is not a length: expected a whole number from 0 to 2^32 - 1"));
    }
    if (is_llm) {
      sample.llm_length = length;
      continue;
    }
    SampleItem& item = sample.items.emplace_back(column.item);
    item.lengths = {length, length, length / rows_per_length + (length % rows_per_length != 0)};
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Phase>> ReadColumns(const std::string& path, absl::string_view line) {
  absl::ConsumePrefix(&line, "\xef\xbb\xbf");  // a byte order mark, which spreadsheets write
  std::vector<std::string> columns;
  for (absl::string_view cell : absl::StrSplit(line, ',')) {
    const std::string column(absl::StripAsciiWhitespace(cell));
    if (const absl::Status status = reorder::CheckPhaseName(column); !status.ok()) {
      return BadCell(path, 1, absl::StrCat("a column has no phase: ", status.message()));
    }
    if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
      return BadCell(path, 1, absl::StrCat("column '", column, "' is listed twice"));
    }
    columns.push_back(column);
  }
  if (std::find(columns.begin(), columns.end(), "llm") == columns.end()) {
    return BadCell(path, 1, absl::StrCat("no column 'llm'; the columns are ", absl::StrJoin(columns, ", ")));
  }
  absl::StatusOr<std::vector<Phase>> phases = reorder::NamedPhases(columns);
  if (!phases.ok()) return BadCell(path, 1, phases.status().message());
  return phases;
}

std::vector<Phase> ByNumber(std::vector<Phase> phases) {
  std::sort(phases.begin(), phases.end(),
            [](const Phase& a, const Phase& b) { return a.number() < b.number(); });
  return phases;
}

SampleItem KindOf(const reorder::ItemPhases& table, const Phase& phase) {
  const std::vector<Phase>& phases = table.phases();
  return table.KindOf(static_cast<size_t>(std::find(phases.begin(), phases.end(), phase) - phases.begin()));
}

}  // namespace

absl::StatusOr<LengthTrace> ReadLengthTrace(const std::string& path) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string line;
  if (!std::getline(in, line)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a CSV file with the header llm,vision,audio or other phases"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<Phase> phases, ReadColumns(path, line));
  LengthTrace trace{.phases = ByNumber(phases)};
  const reorder::ItemPhases table(trace.phases);
  std::vector<Column> columns;
  for (const Phase& phase : phases) columns.push_back({phase, KindOf(table, phase)});
  for (size_t number = 2; std::getline(in, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    if (cells.size() != columns.size()) {
      return BadCell(path, number, absl::StrCat(cells.size(), " cells for ", columns.size(), " columns"));
    }
    SampleLengths& sample = trace.samples.emplace_back();
    for (size_t c = 0; c < cells.size(); ++c) {
      const absl::Status added = AddCell(columns[c], cells[c], sample);
      if (!added.ok()) return BadCell(path, number, added.message());
    }
  }
  return trace;
}

LengthTrace WithoutEmptyPhases(LengthTrace trace) {
  const reorder::ItemPhases before(trace.phases);
  std::vector<bool> has_items(trace.phases.size(), false);
  for (const SampleLengths& sample : trace.samples) {
    for (const SampleItem& item : sample.items) has_items[*before.Find(item)] = true;
  }
  size_t number = 0;
  std::erase_if(trace.phases,
                [&](const Phase& phase) { return !has_items[number++] && phase != Phase::kLlm; });
  // Towers are numbers among the phases that are left.
  const reorder::ItemPhases after(trace.phases);
  for (SampleLengths& sample : trace.samples) {
    for (SampleItem& item : sample.items) {
      const ItemLengths lengths = item.lengths;
      item = KindOf(after, before.phases()[*before.Find(item)]);
      item.lengths = lengths;
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
