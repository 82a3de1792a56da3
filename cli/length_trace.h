// Reads a trace of lengths: CSV with a header, one row per sample. Column `llm` has the length of the
// sequence. Every other column is an encoder phase of that name and lists the lengths of the sample's items
// in it, separated by spaces.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/words.h"

namespace evenkeel::cli {

struct LengthTrace {
  std::vector<Phase> phases;           // those of reorder/named_phases.h, by number: the llm is first
  std::vector<SampleLengths> samples;  // items in the order of the columns
};

// An item has a quarter of its length in output rows, one of a phase that encodes audio a half, rounded up.
// NotFound: no such file. InvalidArgument, with "file:line: ": no `llm` column, a repeated column or one
// whose name no phase can have, too many columns, a cell that is not a number, not exactly one number in
// `llm`.
absl::StatusOr<LengthTrace> ReadLengthTrace(const std::string& path);

// The same samples, without encoder phases of which no sample has an item.
LengthTrace WithoutEmptyPhases(LengthTrace trace);

// `count` samples: the first ones if the seed is 0, otherwise a random choice without repetition that depends
// on the seed alone. InvalidArgument: the trace has fewer.
absl::StatusOr<std::vector<SampleLengths>> DrawFromTrace(std::vector<SampleLengths> trace, size_t count,
                                                         uint64_t seed);

// `count` samples, drawn with repetition. InvalidArgument: the trace is empty.
absl::StatusOr<std::vector<SampleLengths>> DrawWithRepetition(const std::vector<SampleLengths>& trace,
                                                              size_t count, uint64_t seed);

// The samples of a step: `repeated` samples with repetition or, if that is 0, `count` without.
absl::StatusOr<std::vector<SampleLengths>> DrawStep(std::vector<SampleLengths> trace, size_t count,
                                                    size_t repeated, uint64_t seed);

}  // namespace evenkeel::cli
