// Formats a plan as a table for people and as JSON for programs. The JSON does not have the stream digest, so
// two streams with the same plan give the same document.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "stream/stream.h"

namespace evenkeel::cli {

std::string PlanTable(const stream::Stream& stream, const stream::StepPlan& plan);
absl::StatusOr<std::string> PlanJson(const stream::Stream& stream, const stream::StepPlan& plan);

}  // namespace evenkeel::cli
