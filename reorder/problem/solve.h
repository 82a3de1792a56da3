// Solves a problem of the planner given as JSON, for `evenkeel solve` and the Python package's
// `evenkeel.plan`. proto/problem.proto is the schema of both sides; docs/planner.md explains it with
// examples.
// Example:
//     absl::StatusOr<std::string> solution = SolveJson(R"({"balance": {}})");
// Thread safety: a pure function; may be called from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "reorder/problem/balance_problem.h"

namespace evenkeel::reorder {

// Field names are those of the schema; fields that are 0 are printed, too. InvalidArgument: not JSON, an
// unknown field, no kind, or refused by the kind's solver; the message names the field. ResourceExhausted: a
// capacity that cannot be kept.
absl::StatusOr<std::string> SolveJson(const std::string& problem);

// A BalanceProblem alone, for callers that have its samples in arrays. InvalidArgument: see
// SolveJson.
absl::StatusOr<BalanceInput> ParseBalanceInput(const std::string& balance_problem);

}  // namespace evenkeel::reorder
