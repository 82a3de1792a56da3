// Parses a problem, calls the solver of its kind, and prints the solution.
#include "reorder/problem/solve.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/problem/explain.h"
#include "reorder/problem/kinds.h"
#include "reorder/problem/messages.h"

namespace evenkeel::reorder {

namespace {

template <typename Message>
absl::StatusOr<Message> Parse(const std::string& json, const std::string& root) {
  Message message;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &message);
  if (parsed.ok()) return message;
  return absl::InvalidArgumentError(absl::StrCat(
      "problem: ", Explain(json, *Message::descriptor(), root, std::string(parsed.message().as_string()))));
}

}  // namespace

absl::StatusOr<pb::Problem> ParseProblem(const std::string& json) { return Parse<pb::Problem>(json, ""); }

absl::StatusOr<BalanceInput> ParseBalanceInput(const std::string& balance_problem) {
  EVENKEEL_ASSIGN_OR_RETURN(const auto problem, Parse<pb::BalanceProblem>(balance_problem, "balance"));
  return ToBalanceInput(problem);
}

absl::StatusOr<pb::Solution> Solve(const pb::Problem& problem) {
  pb::Solution solution;
  absl::Status status;
  switch (problem.kind_case()) {
    case pb::Problem::kBalance:
      status = SolveBalance(problem.balance(), solution);
      break;
    case pb::Problem::kCompose:
      status = SolveCompose(problem.compose(), solution);
      break;
    case pb::Problem::kOrder:
      status = SolveOrder(problem.order(), solution);
      break;
    case pb::Problem::kPack:
      status = SolvePack(problem.pack(), solution);
      break;
    case pb::Problem::kContextParallel:
      status = SolveContextParallel(problem.context_parallel(), solution);
      break;
    case pb::Problem::KIND_NOT_SET:
      status = absl::InvalidArgumentError(
          "problem: no kind; give one of balance, compose, order, pack, context_parallel");
      break;
  }
  EVENKEEL_RETURN_IF_ERROR(status);
  return solution;
}

absl::StatusOr<std::string> PrintSolution(const pb::Solution& solution) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(solution, &json, options);
  if (!printed.ok()) return absl::InternalError(absl::StrCat("solution: ", printed.ToString()));
  return json;
}

absl::StatusOr<std::string> SolveJson(const std::string& problem) {
  EVENKEEL_ASSIGN_OR_RETURN(const pb::Problem message, ParseProblem(problem));
  EVENKEEL_ASSIGN_OR_RETURN(const pb::Solution solution, Solve(message));
  return PrintSolution(solution);
}

}  // namespace evenkeel::reorder
