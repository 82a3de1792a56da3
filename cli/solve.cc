// `evenkeel solve`: solves one problem of the planner, from JSON or from a trace of lengths.
#include "reorder/problem/solve.h"

#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/length_trace.h"
#include "cli/trace_problems.h"
#include "core/status.h"
#include "reorder/item_phases.h"
#include "reorder/problem/messages.h"

namespace evenkeel::cli {
namespace {

struct SolveArguments {
  bool lines = false;
  std::string trace;
  uint32_t ranks = 8;
  uint32_t per_rank = 60;
  uint32_t ranks_per_node = 8;
  std::string kind = "balance";
  std::string algorithm;  // empty: the default of its kind
  std::string llm_placement;
  bool node_wise = false;
  double tolerance = -1;
  uint64_t seed = 0;
  size_t samples = 0;
  PackTraceOptions pack;
  double tokens_per_rank = 0;
  // With these defaults attention hides the ring from some thousands of tokens on.
  double attention = 1.0 / 4096, linear = 1, constant = 0, ring = 0.3, ring_constant = 0;
};

std::string ReadAll(std::istream& in) { return {std::istreambuf_iterator<char>(in), {}}; }

// Items by the number of their phase, each phase's in their order.
void AddItems(const reorder::ItemPhases& table, const SampleLengths& lengths, std::vector<bool>& has_items,
              pb::BalanceSample& sample) {
  for (size_t p = 0; p < table.phases().size(); ++p) {
    for (const SampleItem& item : lengths.items) {
      if (table.Find(item) != p) continue;
      has_items[p] = true;
      pb::PhaseItem& message = *sample.add_items();
      message.set_phase(std::string(table.phases()[p].name()));
      message.set_cost_length(item.lengths.cost_length);
      message.set_output_rows(item.lengths.output_rows);
    }
  }
}

void AddPhase(const SolveArguments& arguments, const std::string& name, pb::BalanceProblem& problem) {
  pb::BalancePhase& phase = *problem.add_phases();
  phase.set_name(name);
  phase.set_num_ranks(arguments.ranks);
  phase.set_algorithm(arguments.algorithm);
  phase.set_node_wise(arguments.node_wise);
  if (arguments.tolerance >= 0) phase.set_tolerance(arguments.tolerance);
}

// Places the llm by an algorithm that considers the llm alone.
absl::Status PlaceLlm(const std::string& algorithm, pb::BalanceProblem& whole) {
  pb::Problem problem;
  pb::BalanceProblem& llm = *problem.mutable_balance();
  *llm.add_phases() = whole.phases(0);
  llm.mutable_phases(0)->set_algorithm(algorithm);
  for (const pb::BalanceSample& sample : whole.samples()) llm.add_samples()->set_llm(sample.llm());
  EVENKEEL_ASSIGN_OR_RETURN(const pb::Solution solution, reorder::Solve(problem));
  *whole.mutable_llm_rank() = solution.balance().llm_rank();
  return absl::OkStatus();
}

absl::StatusOr<pb::Problem> BalanceFromTrace(const SolveArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(LengthTrace trace, ReadLengthTrace(arguments.trace));
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<SampleLengths> step,
                            DrawStep(std::move(trace.samples), size_t{arguments.ranks} * arguments.per_rank,
                                     arguments.samples, arguments.seed));
  pb::Problem problem;
  pb::BalanceProblem& balance = *problem.mutable_balance();
  balance.set_ranks_per_node(arguments.ranks_per_node);
  const reorder::ItemPhases table(trace.phases);
  std::vector<bool> has_items(trace.phases.size(), false);
  has_items[0] = true;  // the llm
  for (const SampleLengths& lengths : step) {
    pb::BalanceSample& sample = *balance.add_samples();
    sample.set_llm(lengths.llm_length);
    AddItems(table, lengths, has_items, sample);
  }
  for (size_t p = 0; p < trace.phases.size(); ++p) {
    if (has_items[p]) AddPhase(arguments, std::string(trace.phases[p].name()), balance);
  }
  if (!arguments.llm_placement.empty()) {
    EVENKEEL_RETURN_IF_ERROR(PlaceLlm(arguments.llm_placement, balance));
  }
  return problem;
}

absl::StatusOr<pb::Problem> FromTrace(const SolveArguments& arguments) {
  if (arguments.kind == "balance") return BalanceFromTrace(arguments);
  EVENKEEL_ASSIGN_OR_RETURN(LengthTrace trace, ReadLengthTrace(arguments.trace));
  if (arguments.samples > 0) {
    EVENKEEL_ASSIGN_OR_RETURN(trace.samples,
                              DrawWithRepetition(trace.samples, arguments.samples, arguments.seed));
  }
  if (arguments.kind == "pack") {
    PackTraceOptions options = arguments.pack;
    options.algorithm = arguments.algorithm;
    options.seed = arguments.seed;
    return PackFromTrace(trace, options);
  }
  ContextParallelTraceOptions options{.algorithm = arguments.algorithm,
                                      .ranks = arguments.ranks,
                                      .tokens_per_rank = arguments.tokens_per_rank};
  options.cost.set_attention(arguments.attention);
  options.cost.set_linear(arguments.linear);
  options.cost.set_constant(arguments.constant);
  options.cost.set_ring(arguments.ring);
  options.cost.set_ring_constant(arguments.ring_constant);
  return ContextParallelFromTrace(trace.samples, options);
}

// One problem a line, one solution a line, in the same order, each written before the next line is read.
absl::Status SolveLines() {
  std::string line;
  uint64_t number = 0, refused = 0;
  while (std::getline(std::cin, line)) {
    ++number;
    absl::StatusOr<std::string> json = reorder::SolveJson(line);
    if (!json.ok()) {
      ++refused;
      pb::Solution error;
      error.set_error(std::string(json.status().message()));
      json = reorder::PrintSolution(error);
    }
    EVENKEEL_RETURN_IF_ERROR(json.status());
    std::cout << *json << std::endl;
  }
  if (refused == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      refused, " of ", number, " problems have no solution; their lines have `error` with the reason"));
}

absl::Status RunSolve(const SolveArguments& arguments) {
  if (arguments.lines) return SolveLines();
  EVENKEEL_ASSIGN_OR_RETURN(const pb::Problem problem, arguments.trace.empty()
                                                           ? reorder::ParseProblem(ReadAll(std::cin))
                                                           : FromTrace(arguments));
  EVENKEEL_ASSIGN_OR_RETURN(const pb::Solution solution, reorder::Solve(problem));
  EVENKEEL_ASSIGN_OR_RETURN(const std::string json, reorder::PrintSolution(solution));
  std::cout << json << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddSolveCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "solve",
      "Solve one of the planner's problems: JSON on stdin, or --trace; the solution is JSON on stdout");
  auto arguments = std::make_shared<SolveArguments>();
  CLI::Option* trace =
      command->add_option("--trace", arguments->trace,
                          "Take samples from this CSV with columns llm, vision, audio or any other phases");
  command
      ->add_flag("--lines", arguments->lines,
                 "stdin has one problem a line; stdout gets one solution a line, in the same order")
      ->excludes(trace);
  const auto with_trace = [&](CLI::Option* option) { option->needs(trace); };
  with_trace(command->add_option("--ranks", arguments->ranks, "Ranks of every phase (8)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(command->add_option("--per-rank", arguments->per_rank, "Samples per rank (60)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(command->add_option("--ranks-per-node", arguments->ranks_per_node, "Ranks of a node (8)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(command->add_option("--algorithm", arguments->algorithm, "Algorithm (the default of its kind)"));
  with_trace(command->add_option("--llm-placement", arguments->llm_placement,
                                 "First place the llm by this algorithm and fix that placement"));
  with_trace(
      command->add_flag("--node-wise", arguments->node_wise, "Then permute the encoders' batches by node"));
  with_trace(
      command->add_option("--tolerance", arguments->tolerance, "Tolerated share above the mean; 0: none")
          ->check(CLI::Range(0.0, 0.999)));
  with_trace(command->add_option("--seed", arguments->seed, "Choose samples at random; 0: the first ones"));
  with_trace(command->add_option("--kind", arguments->kind, "balance (default), pack, context_parallel")
                 ->check(CLI::IsMember({"balance", "pack", "context_parallel"})));
  with_trace(
      command
          ->add_option("--samples", arguments->samples,
                       "Samples drawn with repetition; 0: the whole trace (balance: ranks x per-rank of it)")
          ->check(CLI::Range(0, 1 << 30)));
  with_trace(command
                 ->add_option("--samples-per-bin", arguments->pack.samples_per_bin,
                              "pack: capacity in mean samples (9); 0: from the data")
                 ->check(CLI::Range(0.0, 1e9)));
  with_trace(command->add_option("--devices", arguments->pack.devices, "pack: bins of a step (64)")
                 ->check(CLI::Range(1, 1 << 20)));
  const auto of_context = [&](const char* name, double& value, const char* help) {
    with_trace(command->add_option(name, value, std::string("context_parallel: ") + help));
  };
  of_context("--tokens-per-rank", arguments->tokens_per_rank,
             "tokens that fit into a rank's memory; 0: no limit");
  of_context("--attention", arguments->attention, "cost per token squared (1/4096)");
  of_context("--linear", arguments->linear, "cost per token (1)");
  of_context("--constant", arguments->constant, "cost of a group (0)");
  of_context("--ring", arguments->ring, "cost per token in the ring (0.3)");
  of_context("--ring-constant", arguments->ring_constant, "cost of a group of several ranks (0)");
  command->callback([arguments, exit_code] { *exit_code = Report(RunSolve(*arguments)); });
}

}  // namespace evenkeel::cli
