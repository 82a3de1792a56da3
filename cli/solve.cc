#include <google/protobuf/util/json_util.h>

#include <chrono>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/length_trace.h"
#include "cli/problem_json.h"
#include "core/status.h"

namespace evenkeel::cli {
namespace {

struct SolveArguments {
  std::string trace;
  uint32_t ranks = 8;
  uint32_t per_rank = 60;
  uint32_t ranks_per_node = 8;
  std::string algorithm = "balance_without_moving";
  std::string llm_placement;
  bool node_wise = false;
  double tolerance = -1;
  uint64_t seed = 0;
};

class StopWatch {
 public:
  double Milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

absl::StatusOr<pb::Problem> ReadProblem(std::istream& in) {
  const std::string json((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  pb::Problem problem;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &problem);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("problem: ", parsed.ToString()));
  if (problem.kind_case() == pb::Problem::KIND_NOT_SET) {
    return absl::InvalidArgumentError("problem: no kind; give one of balance, compose");
  }
  return problem;
}

// The llm placement that an algorithm gives when it knows of nothing else.
absl::StatusOr<std::vector<uint32_t>> PlaceLlm(const BalanceInput& whole, const std::string& algorithm) {
  BalanceInput input{.ranks_per_node = whole.ranks_per_node, .step = whole.step};
  for (const BalancePhaseInput& phase : whole.phases) {
    if (phase.spec.phase == Phase::kLlm) input.phases.push_back(phase);
  }
  input.phases.front().spec.algorithm = algorithm;
  for (SampleLengths& sample : input.step.lengths) sample.items.clear();
  EVENKEEL_ASSIGN_OR_RETURN(const BalanceOutcome outcome, PlanBalance(input));
  std::vector<uint32_t> rank;
  for (const PlannedSample& sample : outcome.plan.samples) rank.push_back(sample.place.rank);
  return rank;
}

absl::StatusOr<BalanceInput> FromTrace(const SolveArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<SampleLengths> trace, ReadLengthTrace(arguments.trace));
  BalanceInput input{.ranks_per_node = arguments.ranks_per_node};
  EVENKEEL_ASSIGN_OR_RETURN(
      input.step.lengths,
      DrawFromTrace(std::move(trace), size_t{arguments.ranks} * arguments.per_rank, arguments.seed));
  bool has[kNumPhases] = {true, false, false};
  for (const SampleLengths& sample : input.step.lengths) {
    input.step.refs.push_back({0, 0, input.step.refs.size()});
    for (const SampleItem& item : sample.items) has[static_cast<size_t>(PhaseOf(item.medium))] = true;
  }
  for (Phase named : kAllPhases) {
    if (!has[static_cast<size_t>(named)]) continue;
    BalancePhaseInput& phase = input.phases.emplace_back();
    phase.spec.phase = named;
    phase.spec.algorithm = arguments.algorithm;
    phase.node_wise = arguments.node_wise;
    if (arguments.tolerance >= 0) phase.tolerance = arguments.tolerance;
    for (uint32_t r = 0; r < arguments.ranks; ++r) phase.spec.ranks.push_back(r);
  }
  if (!arguments.llm_placement.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(input.llm_rank, PlaceLlm(input, arguments.llm_placement));
  }
  return input;
}

absl::Status Solve(const BalanceInput& input, pb::Solution& solution) {
  const StopWatch watch;
  EVENKEEL_ASSIGN_OR_RETURN(BalanceOutcome outcome, PlanBalance(input));
  solution.set_wall_ms(watch.Milliseconds());
  EVENKEEL_RETURN_IF_ERROR(MeasureBalance(input, outcome));
  *solution.mutable_balance() = ToMessage(outcome);
  return absl::OkStatus();
}

absl::Status Solve(const pb::ComposeProblem& problem, pb::Solution& solution) {
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

absl::Status RunSolve(const SolveArguments& arguments) {
  pb::Solution solution;
  if (!arguments.trace.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(const BalanceInput input, FromTrace(arguments));
    EVENKEEL_RETURN_IF_ERROR(Solve(input, solution));
  } else {
    EVENKEEL_ASSIGN_OR_RETURN(const pb::Problem problem, ReadProblem(std::cin));
    if (problem.has_compose()) {
      EVENKEEL_RETURN_IF_ERROR(Solve(problem.compose(), solution));
    } else {
      EVENKEEL_ASSIGN_OR_RETURN(const BalanceInput input, ToBalanceInput(problem.balance()));
      EVENKEEL_RETURN_IF_ERROR(Solve(input, solution));
    }
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(solution, &json, options);
  if (!printed.ok()) return absl::InternalError(absl::StrCat("solution: ", printed.ToString()));
  std::cout << json << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddSolveCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "solve",
      "Solve one of the planner's problems: JSON on stdin, or --trace; the solution is JSON on stdout");
  auto arguments = std::make_shared<SolveArguments>();
  CLI::Option* trace = command->add_option(
      "--trace", arguments->trace, "Balance the samples of this CSV, with columns llm, vision, audio");
  const auto with_trace = [&](CLI::Option* option) { option->needs(trace); };
  with_trace(command->add_option("--ranks", arguments->ranks, "Ranks of every phase (8)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(command->add_option("--per-rank", arguments->per_rank, "Samples per rank (60)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(command->add_option("--ranks-per-node", arguments->ranks_per_node, "(8)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(
      command->add_option("--algorithm", arguments->algorithm, "Of every phase (balance_without_moving)"));
  with_trace(command->add_option("--llm-placement", arguments->llm_placement,
                                 "Place the llm by this algorithm first; the placement is then given"));
  with_trace(
      command->add_flag("--node-wise", arguments->node_wise, "Then permute the encoders' batches by node"));
  with_trace(command->add_option("--tolerance", arguments->tolerance, "Share above the mean; 0: none")
                 ->check(CLI::Range(0.0, 0.999)));
  with_trace(command->add_option("--seed", arguments->seed, "Choose samples at random; 0: the first ones"));
  command->callback([arguments, exit_code] { *exit_code = Report(RunSolve(*arguments)); });
}

}  // namespace evenkeel::cli
