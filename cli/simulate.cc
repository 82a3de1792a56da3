// `evenkeel simulate`: compares policies by the modelled time of training steps.
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "advise/policies.h"
#include "advise/step_model.h"
#include "advise/step_model_degrees.h"
#include "cli/commands.h"
#include "cli/length_trace.h"
#include "cli/model_file.h"
#include "cli/progress.h"
#include "cli/python.h"
#include "cli/simulate_report.h"
#include "core/status.h"
#include "stream/stream.h"

namespace evenkeel::cli {
namespace {

struct SimulateArguments {
  std::string job, trace;
  uint32_t steps = 4;
  uint32_t ranks = 8, encoder_ranks = 0, per_rank = 60, ranks_per_node = 8;
  size_t samples = 0;
  uint64_t seed = 0;
  uint32_t pipeline_stages = 1, virtual_stages = 1;
  uint64_t microbatch_tokens = 0;
  std::string padded;
  std::string model = "mllm-10b", policies;
  GivenMachine machine;  // of the command line
  bool context_parallel = false, no_recompute = false, json = false, print_model = false;
  PythonArguments python;
  std::string svg;
};

// The source of steps: a dataset's index or a trace.
struct Source {
  Job job;
  reorder::DummyItems dummies;
  // longest sequence of a trace; 0: an index, which has more samples than the run reads
  uint64_t longest = 0;
  std::function<absl::StatusOr<StepSamples>(uint64_t step)> samples;
};

absl::StatusOr<Source> FromJob(const SimulateArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJob(arguments.job));
  EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<isolation::PythonPool> python,
                            StartPython(arguments.python, job));
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<stream::Stream> opened,
                            stream::OpenStream(std::move(job), std::move(python)));
  const std::shared_ptr<stream::Stream> stream = std::move(opened);
  return Source{.job = stream->job, .dummies = stream->dummies, .samples = [stream](uint64_t step) {
                  return stream::ReachSamples(*stream, step, PrintEveryFewSeconds());
                }};
}

// The names of --padded.
absl::StatusOr<std::vector<Phase>> PaddedPhases(const SimulateArguments& arguments,
                                                const LengthTrace& trace) {
  std::vector<Phase> padded;
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(arguments.padded, ',', absl::SkipEmpty()))) {
    padded.emplace_back(name);
    if (std::find(trace.phases.begin(), trace.phases.end(), padded.back()) != trace.phases.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--padded: '", name, "' is unknown; the trace has ",
                     absl::StrJoin(trace.phases, ", ",
                                   [](std::string* out, const Phase& phase) { out->append(phase.name()); })));
  }
  return padded;
}

void AddPhases(const SimulateArguments& arguments, const LengthTrace& trace, const std::vector<Phase>& padded,
               Job& job) {
  for (const Phase& phase : trace.phases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase;
    const bool apart = phase != Phase::kLlm && arguments.encoder_ranks > 0;
    const uint32_t ranks = apart ? arguments.encoder_ranks : arguments.ranks;
    // A generator, which comes after the llm, shares no rank with the encoders, which come before it.
    const uint32_t first = arguments.ranks + (phase.is_generator() ? arguments.encoder_ranks : 0);
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(apart ? first + r : r);
    if (std::find(padded.begin(), padded.end(), phase) != padded.end()) spec.batching = Batching::kPadded;
    if (arguments.pipeline_stages > 1 || arguments.encoder_ranks > 0) spec.runs = Runs::kOncePerMicrobatch;
  }
}

absl::StatusOr<Source> FromTrace(const SimulateArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(LengthTrace whole, ReadLengthTrace(arguments.trace));
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<Phase> padded, PaddedPhases(arguments, whole));
  const size_t all = whole.samples.size();
  std::erase_if(whole.samples, [&](const SampleLengths& sample) {
    return arguments.microbatch_tokens > 0 && sample.llm_length > arguments.microbatch_tokens;
  });
  LengthTrace trace = WithoutEmptyPhases(std::move(whole));
  if (trace.samples.size() < all) {
    std::cerr << "evenkeel: " << all - trace.samples.size() << " of " << all
              << " samples exceed --microbatch-tokens " << arguments.microbatch_tokens
              << " and are left out\n";
  }
  Source source;
  source.job.ranks_per_node = arguments.ranks_per_node;
  source.job.pipeline_stages = arguments.pipeline_stages;
  source.job.virtual_stages = arguments.virtual_stages;
  source.job.microbatch.capacity_tokens = arguments.microbatch_tokens;
  if (arguments.virtual_stages > 1) source.job.microbatch.count_multiple = arguments.pipeline_stages;
  AddPhases(arguments, trace, padded, source.job);
  source.job.pipeline.given = arguments.encoder_ranks > 0 || arguments.pipeline_stages > 1;
  source.longest = advise::LongestOf(trace.samples);
  const size_t count = size_t{arguments.ranks} * arguments.per_rank, repeated = arguments.samples;
  const uint64_t seed = arguments.seed;
  source.samples = [samples_of_trace = std::move(trace.samples), count, repeated,
                    seed](uint64_t step) -> absl::StatusOr<StepSamples> {
    StepSamples samples{.step = step};
    EVENKEEL_ASSIGN_OR_RETURN(samples.lengths, DrawStep(samples_of_trace, count, repeated, seed + step + 1));
    for (size_t i = 0; i < samples.lengths.size(); ++i) samples.refs.push_back({0, 0, i});
    return samples;
  };
  return source;
}

// The entries of `known` with the given names; all if no name is given.
template <typename Known>
absl::StatusOr<std::vector<PolicyFigures>> Choose(const std::string& names, std::span<const Known> known,
                                                  const Known* (*find)(std::string_view),
                                                  const std::string& known_names) {
  std::vector<PolicyFigures> chosen;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(names, ',', absl::SkipEmpty()))) {
    const Known* policy = find(name);
    if (policy == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("--policies: '", name, "' is unknown; expected one of ", known_names));
    }
    chosen.push_back({.name = policy->name, .summary = policy->summary});
  }
  if (chosen.empty()) {
    for (const Known& policy : known) chosen.push_back({.name = policy.name, .summary = policy.summary});
  }
  return chosen;
}

// All policies; without a job those that do not need one, which come first.
std::span<const advise::Policy> WithJobs(bool has_job) {
  const std::span<const advise::Policy> all = advise::Policies();
  const auto as_job = std::find_if(all.begin(), all.end(), [](const auto& policy) { return policy.as_job; });
  return has_job ? all : all.first(static_cast<size_t>(as_job - all.begin()));
}

absl::StatusOr<std::vector<PolicyFigures>> ChosenPolicies(const SimulateArguments& arguments) {
  return arguments.context_parallel ? Choose(arguments.policies, advise::DegreePolicies(),
                                             advise::FindDegreePolicy, advise::DegreePolicyNames())
                                    : Choose(arguments.policies, WithJobs(!arguments.job.empty()),
                                             advise::FindPolicy, advise::PolicyNames());
}

// The command line decides, then the model file.
advise::Machine MachineOf(const SimulateArguments& arguments, const GivenMachine& of_model) {
  const GivenMachine& own = arguments.machine;
  advise::Machine machine;
  const auto set = [](const auto& first, const auto& second, double unit, auto& value) {
    if (const auto& given = first ? first : second; given)
      value = static_cast<std::decay_t<decltype(value)>>(unit * *given);
  };
  set(own.peak_tflops, of_model.peak_tflops, 1e12, machine.peak_flops);
  set(own.intra_node_gbs, of_model.intra_node_gbs, 1e9, machine.intra_node_bandwidth);
  set(own.inter_node_gbs, of_model.inter_node_gbs, 1e9, machine.inter_node_bandwidth);
  set(own.memory_gb, of_model.memory_gb, 1e9, machine.memory_bytes);
  set(own.tensor_parallel, of_model.tensor_parallel, 1, machine.gpus_per_stage);
  machine.recompute = !arguments.no_recompute && of_model.recompute.value_or(true);
  return machine;
}

// One variant to compare: a policy, with context parallelism at one of the degrees that its run may use.
struct Candidate {
  size_t policy = 0;  // index into the policies as given
  uint32_t degree = 0;
  PolicyFigures figures;
};

// Of the whole trace, or of all steps that are read from an index.
absl::StatusOr<uint64_t> LongestSequence(const Source& source, uint32_t steps) {
  if (source.longest > 0) return source.longest;
  uint64_t longest = 0;
  for (uint64_t step = 0; step < steps; ++step) {
    EVENKEEL_ASSIGN_OR_RETURN(const StepSamples samples, source.samples(step));
    longest = std::max(longest, advise::LongestOf(samples.lengths));
  }
  return longest;
}

absl::StatusOr<std::vector<Candidate>> CandidatesOf(const SimulateArguments& arguments, const Source& source,
                                                    const Job& job, const advise::TrainingModel& model,
                                                    const advise::Machine& machine) {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<PolicyFigures> policies, ChosenPolicies(arguments));
  uint64_t longest = 0;
  if (arguments.context_parallel) {
    EVENKEEL_ASSIGN_OR_RETURN(longest, LongestSequence(source, arguments.steps));
  }
  std::vector<Candidate> candidates;
  for (size_t p = 0; p < policies.size(); ++p) {
    std::vector<uint32_t> degrees = {0};
    if (arguments.context_parallel) {
      EVENKEEL_ASSIGN_OR_RETURN(degrees, advise::DegreesOfARun(*advise::FindDegreePolicy(policies[p].name),
                                                               job, longest, model, machine));
    }
    for (uint32_t degree : degrees) {
      candidates.push_back({.policy = p, .degree = degree, .figures = policies[p]});
    }
  }
  return candidates;
}

absl::StatusOr<advise::StepFigures> FiguresOf(const SimulateArguments& arguments, const Candidate& candidate,
                                              const Source& source, const Job& job,
                                              const StepSamples& samples, const advise::TrainingModel& model,
                                              const advise::Machine& machine) {
  if (arguments.context_parallel) {
    return advise::ModelDegrees(*advise::FindDegreePolicy(candidate.figures.name), job, samples, model,
                                machine, candidate.degree);
  }
  const advise::Policy& policy = *advise::FindPolicy(candidate.figures.name);
  EVENKEEL_ASSIGN_OR_RETURN(const Plan plan, advise::PlanByPolicy(policy, policy.as_job ? source.job : job,
                                                                  samples, source.dummies));
  return advise::ModelStep(job, plan, model, machine);
}

// For every policy the candidate that is fastest over all steps.
std::vector<PolicyFigures> Fastest(std::vector<Candidate> candidates) {
  std::vector<PolicyFigures> fastest;
  for (Candidate& candidate : candidates) {
    candidate.figures.Finish();
    if (candidate.policy == fastest.size()) {
      fastest.push_back(std::move(candidate.figures));
    } else if (candidate.figures.mean.iteration_seconds < fastest.back().mean.iteration_seconds) {
      fastest.back() = std::move(candidate.figures);
    }
  }
  return fastest;
}

absl::StatusOr<Simulation> Simulate(const SimulateArguments& arguments, const GivenModel& given) {
  const advise::TrainingModel& model = given.model;
  const advise::Machine machine = MachineOf(arguments, given.machine);
  EVENKEEL_ASSIGN_OR_RETURN(const Source source,
                            arguments.trace.empty() ? FromJob(arguments) : FromTrace(arguments));
  EVENKEEL_ASSIGN_OR_RETURN(const Job job, advise::WithCostsOf(model, source.job));
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                            CandidatesOf(arguments, source, job, model, machine));
  Simulation simulation;
  for (const PhaseSpec& spec : job.phases) simulation.phases.push_back(spec.phase);
  for (uint64_t step = 0; step < arguments.steps; ++step) {
    EVENKEEL_ASSIGN_OR_RETURN(const StepSamples samples, source.samples(step));
    if (step == 0) simulation.samples = samples.lengths;
    for (Candidate& candidate : candidates) {
      EVENKEEL_ASSIGN_OR_RETURN(advise::StepFigures figures,
                                FiguresOf(arguments, candidate, source, job, samples, model, machine));
      candidate.figures.Add(std::move(figures));
    }
  }
  simulation.policies = Fastest(std::move(candidates));
  simulation.heading =
      absl::StrCat(model.name, " (", model.source, "): ", job.phases.front().ranks.size(), " llm ranks, ",
                   simulation.samples.size(), " samples a step, ", arguments.steps, " steps");
  if (job.pipeline_stages > 1) {
    absl::StrAppend(&simulation.heading, ", ", job.pipeline_stages, " pipeline stages of ",
                    job.virtual_stages);
  }
  return simulation;
}

absl::Status RunSimulate(const SimulateArguments& arguments) {
  absl::StatusOr<GivenModel> given = FindModel(arguments.model);
  if (!given.ok()) return AddContext(given.status(), "--model");
  if (arguments.print_model) {
    std::cout << ModelFileText(given->model);
    return absl::OkStatus();
  }
  if (arguments.job.empty() == arguments.trace.empty()) {
    return absl::InvalidArgumentError("simulate takes either --job or --trace");
  }
  EVENKEEL_ASSIGN_OR_RETURN(const Simulation simulation, Simulate(arguments, *given));
  std::cout << (arguments.json ? SimulationJson(simulation) + "\n" : SimulationTable(simulation));
  return arguments.svg.empty() ? absl::OkStatus() : DrawSimulation(simulation, arguments.svg);
}

}  // namespace

void AddSimulateCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("simulate", kSimulateDescription);
  auto arguments = std::make_shared<SimulateArguments>();
  AddInterpreterOption(*command, arguments->python);
  command->add_option("--job", arguments->job, "The job file; its index is read, nothing is decoded");
  CLI::Option* trace =
      command->add_option("--trace", arguments->trace,
                          "Take lengths from this CSV with columns llm, vision, audio or any other phases");
  command->add_option("--steps", arguments->steps, "Steps to simulate (4)")->check(CLI::Range(1, 1 << 20));
  const auto with_trace = [&](CLI::Option* option) { option->needs(trace); };
  with_trace(command->add_option("--ranks", arguments->ranks, "Ranks of every phase (8)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(command
                 ->add_option("--encoder-ranks", arguments->encoder_ranks,
                              "Ranks of their own for the encoders, and as many for a generator, once per "
                              "microbatch; 0: those of the llm")
                 ->check(CLI::Range(0, 1 << 20)));
  with_trace(command->add_option("--per-rank", arguments->per_rank, "Samples per rank (60)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(
      command
          ->add_option("--samples", arguments->samples,
                       "Samples of a step, drawn with repetition; 0: ranks x per-rank, without repetition")
          ->check(CLI::Range(0, 1 << 30)));
  with_trace(command->add_option("--ranks-per-node", arguments->ranks_per_node, "Ranks of a node (8)")
                 ->check(CLI::Range(1, 1 << 20)));
  with_trace(command->add_option("--seed", arguments->seed, "Seed for the choice of samples (0)"));
  with_trace(command->add_option("--padded", arguments->padded,
                                 "Phases batched with padding, such as audio,vision"));
  with_trace(command
                 ->add_option("--pipeline-stages", arguments->pipeline_stages,
                              "Pipeline stages (1); if more than 1, encoders run once per microbatch")
                 ->check(CLI::Range(1, 1024)));
  with_trace(command
                 ->add_option("--virtual-stages", arguments->virtual_stages,
                              "Virtual stages of a pipeline stage (1)")
                 ->check(CLI::Range(1, 1024)));
  with_trace(command->add_option("--microbatch-tokens", arguments->microbatch_tokens,
                                 "Maximal llm tokens of a microbatch; 0: one microbatch of any size"));
  command->add_option(
      "--model", arguments->model,
      absl::StrCat("Model (mllm-10b): a model file, a checkpoint's config.json or its folder, or ",
                   advise::TrainingModelNames()));
  command->add_flag("--print-model", arguments->print_model,
                    "Print the model as a model file, and nothing else");
  command->add_flag("--context-parallel", arguments->context_parallel,
                    "Compare degrees of context parallelism instead: llm ranks share sequences in groups");
  command->add_option("--policies", arguments->policies,
                      absl::StrCat("Policies (all): ", advise::PolicyNames(), "; with --context-parallel ",
                                   advise::DegreePolicyNames()));
  command->add_option("--peak-tflops", arguments->machine.peak_tflops, "Peak TFLOP/s of a GPU (989)");
  command->add_option("--intra-node-gbs", arguments->machine.intra_node_gbs,
                      "GB/s of a GPU within its node (450)");
  command->add_option("--inter-node-gbs", arguments->machine.inter_node_gbs,
                      "GB/s of a GPU to other nodes (50)");
  command->add_option("--memory-gb", arguments->machine.memory_gb,
                      "Memory of a GPU in GB (80); with --context-parallel it bounds a group's tokens");
  command
      ->add_option("--tensor-parallel", arguments->machine.tensor_parallel,
                   "GPUs of a rank's pipeline stage (1)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--no-recompute", arguments->no_recompute, "Keep activations for the backward pass");
  command->add_flag("--json", arguments->json, "One JSON document instead of the table");
  command->add_option("--svg", arguments->svg, "Draw loads, pipelines and lengths into this folder");
  command->callback([arguments, exit_code] { *exit_code = Report(RunSimulate(*arguments)); });
}

}  // namespace evenkeel::cli
