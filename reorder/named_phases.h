// The phases of problems and traces of lengths, which name them and have no job.
//
// The name `llm` is the llm; `vision` and `audio` imply their media, as in a job; `generator` is a generator of
// images; every other name is an encoder of images. Numbers decide ties between phases, so they depend on the names and their order alone.
// Example:
//     const auto phases = NamedPhases(std::vector<std::string>{"llm", "vision", "tower"});
//     (*phases)[2].encodes(Medium::kImage);  // true
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/words.h"

namespace evenkeel::reorder {

// InvalidArgument, with the text alone: not a name of a phase.
absl::Status CheckPhaseName(std::string_view name);

// [names] The phases, in the same order; equal names are equal phases. InvalidArgument: a name that is not
// one, or more than kMaxPhases different ones.
absl::StatusOr<std::vector<Phase>> NamedPhases(std::span<const std::string> names);

}  // namespace evenkeel::reorder
