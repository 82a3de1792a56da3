// A plan for people (a table) and for programs (JSON). The stream digest is not part of the JSON: two streams
// with the same plan give the same document.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/stream.h"

namespace evenkeel::cli {

std::string PlanTable(const Stream& stream, const StepPlan& plan);
absl::StatusOr<std::string> PlanJson(const Stream& stream, const StepPlan& plan);

}  // namespace evenkeel::cli
