// Reads a trace of lengths: CSV with a header, one row per sample; column `llm` is the length of the
// sequence, `vision` and `audio` list the lengths of the sample's items, separated by spaces.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/words.h"

namespace evenkeel::cli {

// An image is a quarter of its length in output rows, a clip a half, rounded up.
// NotFound: no such file. InvalidArgument, with "file:line: ": no `llm` column, an unknown one, one that is
// there twice; a cell that is no number, or no or several in `llm`.
absl::StatusOr<std::vector<SampleLengths>> ReadLengthTrace(const std::string& path);

// `count` of them: the first ones where the seed is 0, else a random choice without repetition, the same for
// the same seed. InvalidArgument: the trace has fewer.
absl::StatusOr<std::vector<SampleLengths>> DrawFromTrace(std::vector<SampleLengths> trace, size_t count,
                                                         uint64_t seed);

// `count` of them, the same one as often as it is drawn. InvalidArgument: the trace is empty.
absl::StatusOr<std::vector<SampleLengths>> DrawWithRepetition(const std::vector<SampleLengths>& trace,
                                                              size_t count, uint64_t seed);

// The samples of a step: `repeated` of them with repetition, or where that is 0 `count` without.
absl::StatusOr<std::vector<SampleLengths>> DrawStep(std::vector<SampleLengths> trace, size_t count,
                                                    size_t repeated, uint64_t seed);

}  // namespace evenkeel::cli
