// The kind `compose` of problems: reorder/compose.h as messages.
#include "reorder/compose.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/problem/kinds.h"

namespace evenkeel::reorder {
namespace {

absl::Status CheckArrays(const pb::Rearrangement& message, absl::string_view name) {
  const int runs = message.from_size();
  if (message.from_row_size() == runs && message.to_size() == runs && message.to_row_size() == runs &&
      message.rows_size() == runs) {
    return absl::OkStatus();
  }
  return BadField(absl::StrCat("compose.", name), "from, from_row, to, to_row and rows differ in length");
}

Rearrangement ToRearrangement(const pb::Rearrangement& message) {
  Rearrangement rearrangement{.num_ranks = message.num_ranks()};
  for (int i = 0; i < message.from_size(); ++i) {
    rearrangement.runs.push_back(
        {message.from(i), message.from_row(i), message.to(i), message.to_row(i), message.rows(i)});
  }
  return rearrangement;
}

pb::Rearrangement ToMessage(const Rearrangement& rearrangement) {
  pb::Rearrangement message;
  message.set_num_ranks(rearrangement.num_ranks);
  for (const RowRun& run : rearrangement.runs) {
    message.add_from(run.from);
    message.add_from_row(run.from_row);
    message.add_to(run.to);
    message.add_to_row(run.to_row);
    message.add_rows(run.rows);
  }
  return message;
}

}  // namespace

absl::Status SolveCompose(const pb::ComposeProblem& problem, pb::Solution& solution) {
  EVENKEEL_RETURN_IF_ERROR(CheckArrays(problem.first(), "first"));
  EVENKEEL_RETURN_IF_ERROR(CheckArrays(problem.second(), "second"));
  Rearrangement first = ToRearrangement(problem.first());
  const Rearrangement second = ToRearrangement(problem.second());
  const StopWatch watch;
  if (problem.invert_first()) {
    EVENKEEL_ASSIGN_OR_RETURN(first, Inverse(first));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const Rearrangement route, Compose(first, second));
  EVENKEEL_ASSIGN_OR_RETURN(const Rearrangement inverse, Inverse(route));
  solution.set_wall_ms(watch.Milliseconds());
  pb::ComposeSolution& message = *solution.mutable_compose();
  *message.mutable_route() = ToMessage(route);
  *message.mutable_inverse() = ToMessage(inverse);
  uint64_t rows = 0, between = 0;
  for (const RowRun& run : route.runs) {
    rows += run.rows;
    if (run.from != run.to) between += run.rows;
  }
  message.set_rows(rows);
  message.set_rows_between_ranks(between);
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
