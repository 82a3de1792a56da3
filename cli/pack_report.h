// How full and how alike the bins of some steps are.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "stream/stream.h"

namespace evenkeel::cli {

// Of the bins of steps `first` to `first + steps - 1`, which are drawn, not planned: a table, or one JSON document.
// FailedPrecondition: the job does not pack. Errors of ReachSamples.
absl::StatusOr<std::string> PackReport(const stream::Stream& stream, uint64_t first, uint64_t steps,
                                       bool json);

}  // namespace evenkeel::cli
