// Quality and speed of the planner, as tables in Markdown:
//
//   planner                       the tables of docs/planner.md
//   planner --trace FILE.csv ...  the same on a trace with columns vision,audio,llm
//   planner --given               the llm placed by greedy_packed: rows between nodes, and the bound
//   planner --figures [--points 1,7,9] [--seed N] [FILE.csv ...]   all figures, or those of some points, with
//                                 their targets; packing draws from the files, or from a made-up trace of
//                                 tiles. EVENKEEL_CBC_SECONDS: what the solver may take for each of 12
//                                 problems
//   planner --growth [FILE.svg]   1,000 to 1,000,000 samples at 60 per rank
//   planner --pack FILE.csv ...      bins of 1,200,000 samples drawn from all of them
//   planner --context-parallel      512 sequences over 64 ranks
//   planner --order [DRAWS] [FILE.csv ...]   orders of a pipeline's microbatches (1,000 draws)
//   planner --pipelines              plans of steps whose llm is a pipeline
//   planner --case RANKS SAMPLES_PER_RANK ALGORITHM [SEED]   one row
//   planner --phases N [RANKS SAMPLES_PER_RANK]   milliseconds of a plan of N phases (2,560 ranks, 60 each)
//   planner --first RANKS SAMPLES_PER_RANK [SEED]   wall and processor time of a process's first plan, in ms
//
// Per row: the largest over the mean load of each phase, output rows whose encoder is on another rank, and on
// another node, than the llm part they belong to, and the least processor time of several calls of MakePlan,
// which uses one thread.
#include "reorder/planner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/planner_figures.h"
#include "bench/planner_order.h"
#include "bench/planner_pack.h"
#include "reorder/problem/balance_problem.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace {

namespace reorder = evenkeel::reorder;
using evenkeel::Job;
using evenkeel::Phase;
using evenkeel::Plan;

std::vector<uint32_t> Numbers(const std::string& cell) {
  std::istringstream in(cell);
  std::vector<uint32_t> numbers;
  for (uint32_t number; in >> number;) numbers.push_back(number);
  return numbers;
}

std::vector<evenkeel::SampleLengths> ReadTrace(const char* path) {
  std::ifstream in(path);
  if (!in) {
    std::cerr << path << ": cannot be read\n";
    std::exit(1);
  }
  std::vector<evenkeel::SampleLengths> trace;
  std::string line, vision, audio, llm;
  std::getline(in, line);  // the header: vision,audio,llm or vision,llm
  const bool has_audio = line.find("audio") != std::string::npos;
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::getline(cells, vision, ',');
    if (has_audio) std::getline(cells, audio, ',');
    std::getline(cells, llm, ',');
    trace.push_back(reorder::MakeOmniSample(0, Numbers(vision), evenkeel::Medium::kImage, Numbers(audio)));
    trace.back().llm_length = static_cast<uint32_t>(std::strtoul(llm.c_str(), nullptr, 10));
  }
  return trace;
}

// The first samples of a trace as a step.
evenkeel::StepSamples MakeStep(const std::vector<evenkeel::SampleLengths>& trace, size_t samples) {
  evenkeel::StepSamples step;
  step.lengths.assign(trace.begin(), trace.begin() + static_cast<ptrdiff_t>(samples));
  for (size_t i = 0; i < samples; ++i) step.refs.push_back({0, 0, i});
  return step;
}

Job MakeJob(uint32_t ranks, const std::string& algorithm) {
  Job job;
  job.ranks_per_node = 8;
  for (Phase phase : evenkeel::kUsualPhases) {
    evenkeel::PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase;
    spec.algorithm = algorithm;
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
  }
  return job;
}

struct Moved {
  uint64_t ranks = 0;
  uint64_t nodes = 0;
  uint64_t all = 0;
};

Moved MovedRows(const Job& job, const Plan& plan) {
  Moved moved;
  for (const evenkeel::PlannedItem& item : plan.items) {
    if (item.sample == evenkeel::kDummy) continue;
    const uint32_t from = plan.phase(UsualPhaseOf(item.medium))->ranks[item.place.rank];
    const uint32_t to = plan.phase(Phase::kLlm)->ranks[plan.samples[item.sample].place.rank];
    moved.all += item.lengths.output_rows;
    if (from != to) moved.ranks += item.lengths.output_rows;
    if (job.NodeOf(from) != job.NodeOf(to)) moved.nodes += item.lengths.output_rows;
  }
  return moved;
}

double Imbalance(const std::vector<double>& loads) {
  double sum = 0, largest = 0;
  for (double load : loads) sum += load, largest = std::max(largest, load);
  return sum > 0 ? largest * loads.size() / sum : 1;
}

// The least max/mean that any placement could reach for a phase: its longest item may alone exceed the mean.
double Reachable(const Plan& plan, Phase phase) {
  double sum = 0, longest = 0;
  const auto add = [&](double length) { sum += length, longest = std::max(longest, length); };
  for (const auto& sample : plan.samples) {
    if (phase == Phase::kLlm) add(sample.llm_length);
  }
  for (const auto& item : plan.items) {
    if (phase == UsualPhaseOf(item.medium)) add(item.lengths.cost_length);
  }
  return sum > 0 ? std::max(1.0, longest * plan.phase(phase)->ranks.size() / sum) : 1;
}

void PrintRow(const Job& job, const std::string& name, const evenkeel::StepSamples& step, int repeats) {
  double best_ms = 1e300;
  Plan plan;
  for (int i = 0; i < repeats; ++i) {
    plan = Plan();
    const std::clock_t start = std::clock();
    auto made = evenkeel::reorder::MakePlan(job, step, {});
    const double took_ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (!made.ok()) {
      std::cerr << made.status() << "\n";
      std::exit(1);
    }
    plan = *std::move(made);
    best_ms = std::min(best_ms, took_ms);
  }
  const absl::Status checked = reorder::PlanCheck(job, step, plan);
  if (!checked.ok()) {
    std::cerr << checked << "\n";
    std::exit(1);
  }
  const Moved moved = MovedRows(job, plan);
  std::printf("| %zu | %zu | %s |", plan.phases[0].ranks.size(),
              step.refs.size() / plan.phases[0].ranks.size(), name.c_str());
  for (Phase phase : evenkeel::kUsualPhases) {
    std::printf(" %.4f (%.2f) |", Imbalance(plan.phase(phase)->load_after), Reachable(plan, phase));
  }
  const double per_cent = moved.all == 0 ? 0 : 100.0 / static_cast<double>(moved.all);
  std::printf(" %.2f %% | %.2f %% | %.1f |\n", per_cent * static_cast<double>(moved.ranks),
              per_cent * static_cast<double>(moved.nodes), best_ms);
  std::fflush(stdout);
}

void PrintGiven(uint32_t ranks, uint32_t per_rank, const char* algorithm) {
  evenkeel::reorder::BalanceInput input{.ranks_per_node = 8};
  input.step =
      MakeStep(evenkeel::reorder::DrawOmniTrace(2024, size_t{ranks} * per_rank), size_t{ranks} * per_rank);
  Job llm_first = MakeJob(ranks, "greedy_packed");
  for (const evenkeel::PhaseSpec& spec : MakeJob(ranks, algorithm).phases)
    input.phases.push_back({.spec = spec});
  const auto placed = evenkeel::reorder::MakePlan(llm_first, input.step, {});
  for (const auto& sample : placed->samples) input.llm_rank.push_back(sample.place.rank);
  const std::clock_t start = std::clock();
  auto outcome = evenkeel::reorder::PlanBalance(input);
  const double took_ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (!outcome.ok() || !reorder::MeasureBalance(input, *outcome).ok()) {
    std::cerr << "given placement: " << outcome.status() << "\n";
    std::exit(1);
  }
  uint64_t bound = 0;
  for (const evenkeel::reorder::BalancedPhase& phase : outcome->phases) bound += phase.inter_node_rows_bound;
  std::printf("| %u | %u | %s | %.4f | %.4f | %llu | %llu | %.1f |\n", ranks, per_rank, algorithm,
              outcome->phases[1].max_over_mean, outcome->phases[2].max_over_mean,
              static_cast<unsigned long long>(outcome->inter_node_rows),
              static_cast<unsigned long long>(bound), took_ms);
}

void PrintGivenTable() {
  std::printf(
      "| ranks | samples per rank | algorithm | vision | audio | inter-node rows | bound | ms |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (uint32_t ranks : {128u, 2560u}) {
    for (uint32_t per_rank : {60u, 30u}) {
      for (const char* algorithm : {"greedy_packed", "node_wise", "balance_without_moving"}) {
        PrintGiven(ranks, per_rank, algorithm);
      }
    }
  }
}

void PrintFirst(uint32_t ranks, uint32_t per_rank, uint64_t seed) {
  const size_t samples = size_t{ranks} * per_rank;
  const Job job = MakeJob(ranks, "balance_without_moving");
  const evenkeel::StepSamples step = MakeStep(evenkeel::reorder::DrawOmniTrace(seed, samples), samples);
  const std::clock_t processor = std::clock();
  const auto start = std::chrono::steady_clock::now();
  const auto plan = evenkeel::reorder::MakePlan(job, step, {});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  if (!plan.ok()) std::cerr << plan.status() << "\n", std::exit(1);
  const double used = 1e3 * static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
  std::printf("%.1f %.1f\n", took.count(), used);
}

int PrintPhases(size_t phases, uint32_t ranks, uint32_t per_rank) {
  if (phases < 2) {
    std::cerr << "--phases: the llm and at least one encoder\n";
    return 2;
  }
  const PhasesTime time = MeasurePhases(2024, phases, ranks, per_rank);
  std::printf("%zu phases, %u ranks, %u samples each: %.1f ms, max/mean over the reachable at most %.4f\n",
              phases, ranks, per_rank, time.ms, time.over_reachable);
  return 0;
}

// --figures and what follows it.
int PrintFiguresOf(int argc, char** argv) {
  FigureOptions options;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--points") == 0 && i + 1 < argc) {
      std::string points = argv[++i];
      std::replace(points.begin(), points.end(), ',', ' ');
      for (uint32_t point : Numbers(points)) options.points.push_back(static_cast<int>(point));
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      for (auto& sample : ReadTrace(argv[i])) options.trace.push_back(std::move(sample));
    }
  }
  if (options.trace.empty()) options.trace = evenkeel::reorder::DrawTileTrace(2024 + options.seed, 20000);
  const char* seconds = std::getenv("EVENKEEL_CBC_SECONDS");
  if (seconds != nullptr) options.cbc_seconds = std::atoi(seconds);
  PrintFigures(options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::vector<evenkeel::SampleLengths>> traces;
  if (argc > 2 && std::strcmp(argv[1], "--trace") == 0) {
    for (int i = 2; i < argc; ++i) traces.push_back(ReadTrace(argv[i]));
  } else if (argc > 4 && std::strcmp(argv[1], "--case") == 0) {
    const uint32_t ranks = static_cast<uint32_t>(std::atoi(argv[2]));
    const size_t samples = size_t{ranks} * static_cast<size_t>(std::atoi(argv[3]));
    const uint64_t seed = argc > 5 ? static_cast<uint64_t>(std::atoll(argv[5])) : 2024;
    PrintRow(MakeJob(ranks, argv[4]), argv[4],
             MakeStep(evenkeel::reorder::DrawOmniTrace(seed, samples), samples), 20);
    return 0;
  } else if (argc > 3 && std::strcmp(argv[1], "--first") == 0) {
    PrintFirst(static_cast<uint32_t>(std::atoi(argv[2])), static_cast<uint32_t>(std::atoi(argv[3])),
               argc > 4 ? static_cast<uint64_t>(std::atoll(argv[4])) : 2024);
    return 0;
  } else if (argc > 2 && std::strcmp(argv[1], "--phases") == 0) {
    return PrintPhases(static_cast<size_t>(std::atoi(argv[2])),
                       argc > 3 ? static_cast<uint32_t>(std::atoi(argv[3])) : 2560,
                       argc > 4 ? static_cast<uint32_t>(std::atoi(argv[4])) : 60);
  } else if (argc > 1 && std::strcmp(argv[1], "--given") == 0) {
    PrintGivenTable();
    return 0;
  } else if (argc > 2 && std::strcmp(argv[1], "--pack") == 0) {
    std::vector<evenkeel::SampleLengths> all;
    for (int i = 2; i < argc; ++i) {
      for (auto& sample : ReadTrace(argv[i])) all.push_back(std::move(sample));
    }
    PrintPackTable(all);
    return 0;
  } else if (argc > 1 && std::strcmp(argv[1], "--context-parallel") == 0) {
    PrintContextParallelTable();
    return 0;
  } else if (argc > 1 && std::strcmp(argv[1], "--order") == 0) {
    for (int i = 3; i < argc; ++i) traces.push_back(ReadTrace(argv[i]));
    if (traces.empty()) traces.push_back(evenkeel::reorder::DrawOmniTrace(2024, 20000));
    MeasureOrders(traces, argc > 2 ? std::atoi(argv[2]) : 1000, true);
    return 0;
  } else if (argc > 1 && std::strcmp(argv[1], "--pipelines") == 0) {
    PrintPipelinePlans();
    return 0;
  } else if (argc > 1 && std::strcmp(argv[1], "--growth") == 0) {
    const Growth growth = MeasureGrowth();
    PrintGrowth(growth);
    if (argc > 2) DrawGrowth(growth, argv[2]);
    return 0;
  } else if (argc > 1 && std::strcmp(argv[1], "--figures") == 0) {
    return PrintFiguresOf(argc, argv);
  } else if (argc > 1) {
    std::cerr << "usage: planner [--figures [--points N,N] [--seed N] [FILE.csv ...] | --given | --growth "
                 "[FILE.svg] | --pack FILE.csv "
                 "... | --context-parallel "
                 "| --order [DRAWS] [FILE.csv ...] | --pipelines | --trace FILE.csv ... "
                 "| --case RANKS SAMPLES_PER_RANK "
                 "ALGORITHM [SEED] | --phases N [RANKS SAMPLES_PER_RANK] | --first RANKS SAMPLES_PER_RANK "
                 "[SEED]]\n";
    return 2;
  } else {
    traces.push_back(evenkeel::reorder::DrawOmniTrace(2024, 153600));
  }
  std::printf(
      "| ranks | samples per rank | algorithm | llm max/mean (reachable) | vision | audio | rows to another "
      "rank "
      "| to another node | ms |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& trace : traces) {
    for (uint32_t ranks : {128u, 2560u}) {
      for (uint32_t per_rank : {60u, 30u, 16u}) {
        if (trace.size() < size_t{ranks} * per_rank) continue;
        const evenkeel::StepSamples step = MakeStep(trace, size_t{ranks} * per_rank);
        for (const char* algorithm : {"none", "greedy_packed", "balance_without_moving"}) {
          PrintRow(MakeJob(ranks, algorithm), algorithm, step, 5);
        }
      }
    }
  }
  return 0;
}
