// solve.h without JSON, for callers that make the message themselves.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/problem.pb.h"

namespace evenkeel::reorder {

// Errors: see SolveJson.
absl::StatusOr<pb::Problem> ParseProblem(const std::string& json);
absl::StatusOr<pb::Solution> Solve(const pb::Problem& problem);
absl::StatusOr<std::string> PrintSolution(const pb::Solution& solution);

}  // namespace evenkeel::reorder
