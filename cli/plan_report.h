// A plan for people (a table) and for programs (JSON). The stream digest is not part of the JSON: two streams
// with the same plan give the same document.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "stream/stream.h"

namespace evenkeel::cli {

std::string PlanTable(const stream::Stream& stream, const stream::StepPlan& plan);
absl::StatusOr<std::string> PlanJson(const stream::Stream& stream, const stream::StepPlan& plan);

}  // namespace evenkeel::cli
