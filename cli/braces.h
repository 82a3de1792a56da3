// Braces of bash in names of files, as the Python package braceexpand expands them: lists, nested ones, ranges of numbers and
// letters with steps, and backslashes. Jobs have a smaller notation of their own (core/job_syntax.h).
//
// Thread safety: a function without state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace evenkeel::cli {

inline constexpr size_t kMaxPatternBytes = 4096;
inline constexpr int kMaxBraceDepth = 16;

// "a{0,1}.{08..10}" -> a0.08, a0.09, a0.10, a1.08, ...: the first braces are the slowest. Braces without a comma or a range stay as
// they are. InvalidArgument: braces that are not balanced, a pattern that is too long or nested too deep, a number of more than nine
// digits. ResourceExhausted: more than `most` names, or more bytes of names than
// a job's shards may have.
absl::StatusOr<std::vector<std::string>> ExpandBraces(std::string_view pattern, size_t most);

}  // namespace evenkeel::cli
