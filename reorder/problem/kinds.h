// Internal to reorder. One function for each kind of problem: message to plain structs, the solver, and back.
// Each fills in its member of the solution and `wall_ms`, the time of the solver's call alone.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/problem.pb.h"
#include "reorder/named_phases.h"
#include "reorder/problem/balance_problem.h"

namespace evenkeel::reorder {

absl::Status SolveBalance(const pb::BalanceProblem& problem, pb::Solution& solution);
absl::Status SolveCompose(const pb::ComposeProblem& problem, pb::Solution& solution);
absl::Status SolveOrder(const pb::OrderProblem& problem, pb::Solution& solution);
absl::Status SolvePack(const pb::PackProblem& problem, pb::Solution& solution);
absl::Status SolveContextParallel(const pb::ContextParallelProblem& problem, pb::Solution& solution);

absl::StatusOr<BalanceInput> ToBalanceInput(const pb::BalanceProblem& problem);

// InvalidArgument: "problem: FIELD: WHY".
inline absl::Status BadField(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("problem: ", field, ": ", why));
}

// [phases] Of messages with a name; errors have the field.
template <typename Messages>
absl::StatusOr<std::vector<Phase>> PhasesOf(const Messages& messages, absl::string_view field) {
  std::vector<std::string> names;
  for (const auto& message : messages) {
    names.push_back(message.name());
    if (const absl::Status status = CheckPhaseName(names.back()); !status.ok()) {
      return BadField(absl::StrCat(field, "[", names.size() - 1, "].name"), status.message());
    }
  }
  absl::StatusOr<std::vector<Phase>> phases = NamedPhases(names);
  if (!phases.ok()) return BadField(field, phases.status().message());
  return phases;
}

class StopWatch {
 public:
  double Milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace evenkeel::reorder
