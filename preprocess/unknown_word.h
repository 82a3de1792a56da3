// The error of a word of the job that names nothing: what there is, and the nearest of it.
//
// Thread safety: a pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/job_syntax.h"

namespace evenkeel::preprocess {

// InvalidArgument: "processor.KEY: 'WORD' is not one of A, B, C; nearest is 'B'". `known` is not empty.
inline absl::Status UnknownWord(std::string_view key, std::string_view word,
                                const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(absl::StrCat("processor.", std::string(key), ": '", ShortText(word),
                                                 "' is not one of ", absl::StrJoin(known, ", "),
                                                 "; nearest is '", Nearest(word, known), "'"));
}

}  // namespace evenkeel::preprocess
