// The planner's problems and solutions as messages: translation only, in both directions.
#pragma once

#include "absl/status/statusor.h"
#include "proto/problem.pb.h"
#include "reorder/balance_problem.h"
#include "reorder/compose.h"

namespace evenkeel::cli {

// InvalidArgument, with the field's name: a word or number that is none of those allowed.
absl::StatusOr<BalanceInput> ToBalanceInput(const pb::BalanceProblem& problem);

pb::BalanceSolution ToMessage(const BalanceOutcome& outcome);

Rearrangement ToRearrangement(const pb::Rearrangement& message);
// InvalidArgument: the parallel arrays differ in length.
absl::Status CheckArrays(const pb::Rearrangement& message, absl::string_view name);
pb::Rearrangement ToMessage(const Rearrangement& rearrangement);

}  // namespace evenkeel::cli
