// Every figure that the planner is held to, measured and compared with its limit.
#include "bench/planner_figures.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/planner_order.h"
#include "reorder/context_parallel/context_parallel.h"
#include "reorder/pack/pack.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/pipeline/pipeline_schedule.h"
#include "reorder/problem/balance_problem.h"
#include "tests/reorder/balance/node_wise_programme.h"
#include "tests/reorder/context_parallel/exhaustive_groups.h"
#include "tests/reorder/many_phases.h"
#include "tests/reorder/pipeline/event_simulation.h"
#include "tests/reorder/pipeline/pipeline_problems.h"
#include "tests/source_dir.h"
#include "tests/usual_phases.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

reorder::BalanceInput MakeInput(uint64_t seed, uint32_t ranks, uint32_t per_rank,
                                const std::string& algorithm) {
  reorder::BalanceInput input{.ranks_per_node = 8};
  for (Phase phase : kUsualPhases) {
    reorder::BalancePhaseInput& in = input.phases.emplace_back();
    in.spec.phase = phase;
    in.spec.algorithm = algorithm;
    for (uint32_t r = 0; r < ranks; ++r) in.spec.ranks.push_back(r);
  }
  input.step.lengths = reorder::DrawOmniTrace(seed, size_t{ranks} * per_rank);
  input.step.refs.resize(input.step.lengths.size());
  return input;
}

// Of all phases, the largest max/mean; where asked, over what the longest unit leaves reachable.
double WorstPhase(const reorder::BalanceOutcome& outcome, bool over_reachable) {
  double worst = 0;
  for (const reorder::BalancedPhase& phase : outcome.phases) {
    worst = std::max(worst, phase.max_over_mean / (over_reachable ? phase.reachable : 1));
  }
  return worst;
}

// Processor time of the first plan of fresh processes of this program, least first: page faults included,
// what others do on the machine not.
std::vector<double> FirstPlans(uint64_t seed, int processes) {
  std::vector<double> ms;
  for (int i = 0; i < processes; ++i) {
    FILE* pipe = popen(absl::StrCat("/proc/", getpid(), "/exe --first 2560 60 ", seed).c_str(), "r");
    double wall = 0, used = 0;
    if (pipe == nullptr || std::fscanf(pipe, "%lf %lf", &wall, &used) != 2)
      std::cerr << "--first printed nothing\n";
    if (pipe != nullptr) pclose(pipe);
    ms.push_back(used);
  }
  std::sort(ms.begin(), ms.end());
  return ms;
}

void PrintSpeed(uint64_t seed) {
  constexpr int kProcesses = 9;
  const std::vector<double> first = FirstPlans(2024 + seed, kProcesses);
  const char* const kPlan = "153,600 samples, 2,560 ranks, three phases, routes included: ms of ";
  PrintFigure("2", absl::StrCat(kPlan, "a process's first plan, median of ", kProcesses),
              first[kProcesses / 2], Limit::kAtMost, 150);
  PrintFact("2", "the least and the most of them",
            absl::StrFormat("%.1f, %.1f", first.front(), first.back()));
  const reorder::BalanceInput input = MakeInput(2024 + seed, 2560, 60, "balance_without_moving");
  double best = 1e300;
  for (int i = 0; i < 6; ++i) {
    const double start = ProcessorMs();
    Value(reorder::PlanBalance(input));
    best = std::min(best, ProcessorMs() - start);
  }
  PrintFigure("2", absl::StrCat(kPlan, "a later one, the least of 6"), best, Limit::kAtMost, 150);
  const PhasesTime five = MeasurePhases(2024 + seed, 5, 2560, 60);
  PrintFigure("2", "153,600 samples, 2,560 ranks, five phases: ms of a plan, the least of 6", five.ms,
              Limit::kAtMost, 250);
  PrintFigure("2", "the same: worst max/mean over the reachable", five.over_reachable, Limit::kAtMost, 1.005);
  const Growth growth = MeasureGrowth();
  PrintFigure("2", "exponent of the time, 1,000 to 1,000,000 samples (n log n: 1.10)", growth.exponent,
              Limit::kAtMost, 1.15);
  PrintFigure("2", "1,000,000 samples: bytes of the heap a sample at most, beyond input and plan",
              growth.bytes.back() - growth.bytes_of_plan.back(), Limit::kAtMost, 300);
  PrintFact("2", "the plan: bytes a sample", growth.bytes_of_plan.back());
}

// The share of an outcome's rows that are encoded on another node than their sample's llm part.
double InterNodeShare(const reorder::BalanceInput& input, const reorder::BalanceOutcome& outcome) {
  double rows = 0;
  for (const SampleLengths& sample : input.step.lengths) {
    for (const SampleItem& item : sample.items) rows += item.lengths.output_rows;
  }
  return static_cast<double>(outcome.inter_node_rows) / rows;
}

// The same input with every phase balanced by itself, its batches then where they fall or permuted by node.
void PrintByPhase(const char* point, reorder::BalanceInput input) {
  for (const bool node_wise : {false, true}) {
    for (reorder::BalancePhaseInput& phase : input.phases) {
      phase.spec.algorithm = "greedy_packed";
      phase.spec.node_wise = node_wise && phase.spec.phase != Phase::kLlm;
    }
    const auto outcome = Value(reorder::SolveBalance(input));
    PrintFact(
        point,
        absl::StrCat("for comparison, greedy_packed per phase", node_wise ? ", then node_wise" : "",
                     ": worst max/mean; inter-node rows of all"),
        absl::StrFormat("%.4f; %.1f %%", WorstPhase(outcome, false), 100 * InterNodeShare(input, outcome)));
  }
}

void PrintFree(uint64_t seed, uint32_t ranks) {
  const reorder::BalanceInput input = MakeInput(31 + 1000 * seed, ranks, 60, "balance_without_moving");
  const auto free = Value(reorder::SolveBalance(input));
  PrintFigure("3a", absl::StrCat("placement free, 60 per rank, ", ranks, " ranks: worst max/mean"),
              WorstPhase(free, false), Limit::kAtMost, 1.005);
  PrintFigure("3a", "inter-node rows", static_cast<double>(free.inter_node_rows), Limit::kAtMost, 0);
  if (ranks == 128) PrintByPhase("3a", input);
  const reorder::BalanceInput sixteen = MakeInput(32 + 1000 * seed, ranks, 16, "balance_without_moving");
  const auto few = Value(reorder::SolveBalance(sixteen));
  PrintFigure("3c", absl::StrCat("16 per rank, ", ranks, " ranks: worst max/mean over the reachable"),
              WorstPhase(few, true), Limit::kAtMost, 1.005);
  PrintFact("3c", "inter-node rows of all",
            absl::StrFormat("%d, %.2f %%", few.inter_node_rows, 100 * InterNodeShare(sixteen, few)));
}

void PrintGivenPlacement(uint64_t seed, uint32_t per_rank) {
  reorder::BalanceInput input = MakeInput(33 + 1000 * seed, 128, per_rank, "balance_without_moving");
  reorder::BalanceInput llm = input;
  llm.phases.resize(1);
  llm.phases[0].spec.algorithm = "greedy_packed";
  for (SampleLengths& sample : llm.step.lengths) sample.items.clear();
  for (const PlannedSample& sample : Value(reorder::PlanBalance(llm)).plan.samples) {
    input.llm_rank.push_back(sample.place.rank);
  }
  const auto given = Value(reorder::SolveBalance(input));
  double bound = 0;
  for (const reorder::BalancedPhase& phase : given.phases)
    bound += static_cast<double>(phase.inter_node_rows_bound);
  PrintFigure("3b", absl::StrCat("placement given, ", per_rank, " per rank: worst max/mean"),
              WorstPhase(given, false), Limit::kAtMost, 1.005);
  PrintFigure("3b", "inter-node rows over the bound", static_cast<double>(given.inter_node_rows) / bound,
              Limit::kAtMost, 1.25);
  PrintByPhase("3b", input);
}

void PrintBalance(uint64_t seed) {
  for (uint32_t ranks : {128u, 2560u}) PrintFree(seed, ranks);
  for (uint32_t per_rank : {60u, 30u}) PrintGivenPlacement(seed, per_rank);
}

// uniform, lognormal, zipf, bimodal, constant
uint32_t DrawLength(reorder::Random& random, int distribution) {
  switch (distribution) {
    case 0:
      return 1 + static_cast<uint32_t>(random.Below(100000));
    case 1:
      return random.Length(7, 1, 1, 200000);
    case 2:
      return static_cast<uint32_t>(std::min(200000.0, 16 / (1.0001 - random.Uniform())));
    case 3:
      return static_cast<uint32_t>(random.Below(10) == 0 ? 30000 + random.Below(9000) : random.Below(900));
    default:
      return 512;
  }
}

double PythonMs(const std::vector<reorder::Load>& cost, uint32_t ranks) {
  std::istringstream answer(
      RunScript("/usr/bin/python3", absl::StrCat("karmarkar_karp.py ", ranks), absl::StrJoin(cost, "\n")));
  double largest = 0, ms = 0;
  answer >> largest >> ms;
  return ms;
}

void PrintTight(uint64_t seed) {
  using namespace reorder;  // NOLINT: balancers alone
  reorder::Random random(seed + 41);
  int kept = 0, counted = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(2 + random.Below(255));
    const int distribution = static_cast<int>(random.Below(5));
    std::vector<reorder::Load> cost(ranks * (2 + random.Below(29)));
    for (reorder::Load& c : cost) c = DrawLength(random, distribution);
    const reorder::PhaseRanks where = reorder::MakeRanks(ranks, 8);
    for (bool equal : {false, true}) {
      const reorder::BalanceProblem problem{
          .ranks = &where, .cost = cost, .tolerance = 0, .equal_counts = equal};
      const auto largest = [&](const auto& assign) {
        return reorder::HeaviestRank(problem, assign(problem));
      };
      kept += largest(reorder::BalanceWithoutMoving) <=
              std::min(largest(reorder::GreedyPacked), largest(reorder::KarmarkarKarp));
      ++counted;
    }
  }
  PrintFigure("4", "tolerance 0: share no worse than greedy and Karmarkar-Karp", 1.0 * kept / counted,
              Limit::kAtLeast, 0.99);
  std::vector<reorder::Load> cost(4096);
  for (reorder::Load& c : cost) c = DrawLength(random, 1);
  const reorder::PhaseRanks where = reorder::MakeRanks(256, 8);
  const reorder::BalanceProblem problem{.ranks = &where, .cost = cost, .tolerance = 0};
  double ours = 1e300;
  for (int i = 0; i < 10; ++i) {
    const double start = ProcessorMs();
    reorder::BalanceWithoutMoving(problem);
    ours = std::min(ours, ProcessorMs() - start);
  }
  double python = 1e300;
  for (int i = 0; i < 3; ++i) python = std::min(python, PythonMs(cost, 256));
  PrintFigure("4", "4,096 items over 256 ranks: times faster than Python's Karmarkar-Karp", python / ours,
              Limit::kAtLeast, 50);
}

void PrintNodeWise(uint64_t seed, int cbc_seconds) {
  using namespace reorder;  // NOLINT: node_wise alone
  if (!reorder::HasCbc()) {
    PrintFact("5", "node_wise, 64 ranks of 8: no cbc; install coinor-cbc", "");
    return;
  }
  double ratio = 0;
  constexpr int kProblems = 12;
  for (int i = 0; i < kProblems; ++i) {
    const reorder::NodeWiseProblem problem = reorder::DrawNodeWiseStep(
        500 + 100 * seed + static_cast<uint64_t>(i), 8, 8, i % 2 == 0 ? kAudioPhase : kVisionPhase);
    const reorder::Proof proof = reorder::Cbc(
        problem,
        cbc_seconds == 0 ? "initialSolve" : absl::StrCat("sec ", cbc_seconds, " timeMode elapsed solve"));
    ratio += static_cast<double>(reorder::LargestEgress(problem, reorder::AssignBatchesToNodes(problem))) /
             proof.bound;
  }
  PrintFigure("5",
              absl::StrCat("node_wise, 64 ranks of 8: mean over what cbc proves",
                           cbc_seconds == 0 ? " by the relaxation" : ""),
              ratio / kProblems, Limit::kAtMost, 1.05);
}

// The simulator against events, on random pipelines.
void PrintSimulator(uint64_t seed) {
  reorder::Random random(seed + 61);
  int other = 0;
  constexpr int kPipelines = 2000;
  for (int i = 0; i < kPipelines; ++i) {
    const reorder::PipelineProblem problem = reorder::DrawPipeline(random, 8, 24);
    const std::vector<uint32_t> order =
        reorder::AtRandom(problem.num_microbatches(), seed + static_cast<uint64_t>(i));
    const double simulated = reorder::SimulatePipeline(problem, order).iteration_time;
    const std::optional<double> by_events = reorder::EventSimulation(problem, order).Run();
    other += !by_events || std::abs(simulated - *by_events) > 1e-12 * simulated;
  }
  PrintFigure("6",
              "2,000 random pipelines: those that the simulator and an event simulation time differently",
              other, Limit::kAtMost, 0);
}

void PrintOrderFigures(uint64_t seed) {
  PrintSimulator(seed);
  const OrderFigures figures = MeasureOrders({reorder::DrawOmniTrace(2024 + seed, 20000)}, 1000, false);
  PrintFigure("6", "1,000 draws: orders no worse than the given one and DistTrain's, share",
              1.0 * figures.not_worse / figures.draws, Limit::kAtLeast, 1);
  PrintFigure("6", "up to 8 microbatches, 4 stages: time over the best of all orders", figures.over_optimum,
              Limit::kAtMost, 1.01);
  PrintFigure("6", "1,000 draws: share of the gap from random to the best known order that is closed",
              figures.closed, Limit::kAtLeast, 0.5);
  PrintFigure("6", "the same over what DistTrain's closes", figures.closed / figures.disttrain_closed,
              Limit::kAtLeast, 1);
}

// As OmniBal: the fullest phase's fill, and the distribution ratio of both.
struct Packed {
  reorder::PackFigures figures;
  double seconds = 0;

  double Ratio(size_t phase) const { return figures.phases[phase].distribution_ratio; }
};

Packed PackBy(const char* algorithm, reorder::PackInput& input) {
  input.algorithm = algorithm;
  const double start = ProcessorMs();
  const reorder::Packing packing = Value(reorder::Pack(input));
  Packed packed{.seconds = (ProcessorMs() - start) / 1e3};
  if (!reorder::PackCheck(input, packing).ok())
    std::cerr << reorder::PackCheck(input, packing) << "\n", std::exit(1);
  packed.figures = reorder::MeasurePack(input, packing);
  return packed;
}

void PrintPacking(uint64_t seed, const std::vector<SampleLengths>& trace) {
  constexpr size_t kSamples = 1200000;
  reorder::Random random(seed + 71);
  reorder::PackInput input{.seed = seed};
  input.phases = {{.phase = Phase::kLlm}, {.phase = kVisionPhase}};
  for (reorder::PackPhase& phase : input.phases) phase.lengths.reserve(kSamples);
  for (size_t s = 0; s < kSamples; ++s) {
    const SampleLengths& sample = trace[random.Below(trace.size())];
    uint32_t vision = 0;
    for (const SampleItem& item : sample.items) {
      if (UsualPhaseOf(item.medium) == kVisionPhase) vision += item.lengths.cost_length;
    }
    input.phases[0].lengths.push_back(sample.llm_length);
    input.phases[1].lengths.push_back(vision);
  }
  for (reorder::PackPhase& phase : input.phases) {
    const double total = std::accumulate(phase.lengths.begin(), phase.lengths.end(), 0.0);
    phase.capacity = std::max<uint64_t>(*std::max_element(phase.lengths.begin(), phase.lengths.end()),
                                        static_cast<uint64_t>(9 * total / static_cast<double>(kSamples)));
  }
  const Packed ours = PackBy("even_fill", input), theirs = PackBy("omnibal", input);
  PrintFigure("7", "1,200,000 samples, nine per bin, 64 devices: vision distribution ratio", ours.Ratio(1),
              Limit::kAtMost, 0.02);
  PrintFigure("7", "llm distribution ratio", ours.Ratio(0), Limit::kAtMost, 0.05);
  PrintFigure("7", "fill", ours.figures.fill, Limit::kAtLeast, 0.97);
  PrintFigure("7", "seconds", ours.seconds, Limit::kAtMost, 3);
  PrintFact("7", "for comparison, OmniBal's method: vision, llm, fill",
            absl::StrFormat("%.4f, %.4f, %.4f", theirs.Ratio(1), theirs.Ratio(0), theirs.figures.fill));
  for (reorder::PackPhase& phase : input.phases) phase.capacity = 0;
  const Packed ours_at_q = PackBy("even_fill", input), theirs_at_q = PackBy("omnibal", input);
  const char* const kAtQ = "at OmniBal's own Q, over its method's: ";
  const auto over = [](double ours, double theirs) { return ours == theirs ? 1 : ours / theirs; };
  PrintFigure("7", absl::StrCat(kAtQ, "vision distribution ratio"),
              over(ours_at_q.Ratio(1), theirs_at_q.Ratio(1)), Limit::kAtMost, 1);
  PrintFigure("7", absl::StrCat(kAtQ, "llm distribution ratio"),
              over(ours_at_q.Ratio(0), theirs_at_q.Ratio(0)), Limit::kAtMost, 1);
  PrintFigure("7", absl::StrCat(kAtQ, "fill"), over(ours_at_q.figures.fill, theirs_at_q.figures.fill),
              Limit::kAtLeast, 1);
}

void PrintContextParallel(uint64_t first) {
  double ms = 0, against_dhp = 1e300, against_powers = 1e300;
  for (uint64_t seed = 100 * first; seed < 100 * first + 20; ++seed) {
    reorder::Random random(seed);
    reorder::ContextParallelInput input{.ranks = 64, .memory_per_token = 1};
    double total = 0, longest = 0;
    for (int s = 0; s < 512; ++s) {
      input.sequences.push_back({.tokens = random.Length(8.5, 1.2, 64, 200000)});
      total += input.sequences.back().tokens;
      longest = std::max<double>(longest, input.sequences.back().tokens);
    }
    const double fills[] = {8, 1.6, 0.7};
    input.memory_per_rank = std::max(longest * 1.05, total / fills[seed % 3]) / 64;
    input.cost = {.attention = 1.0 / 4096, .linear = 1, .constant = 15, .ring = 0.3, .ring_constant = 30};
    const auto time = [&](const char* algorithm, bool powers) {
      input.algorithm = algorithm;
      input.powers_of_two = powers;
      return Value(reorder::PlanContextParallel(input)).time;
    };
    double ours = 0, least_ms = 1e300;
    for (int call = 0; call < 3; ++call) {
      const double start = ProcessorMs();
      ours = time("regroup", false);
      least_ms = std::min(least_ms, ProcessorMs() - start);
    }
    ms = std::max(ms, least_ms);
    against_dhp = std::min(against_dhp, time("dhp", false) / ours);
    against_powers = std::min({against_powers, time("dhp", true) / ours, time("regroup", true) / ours,
                               time("static_power_of_two", false) / ours});
  }
  PrintFigure("8", "512 sequences, 64 ranks: ms, the most of 20, each the least of three calls", ms,
              Limit::kAtMost, 5);
  PrintFigure("8", "dhp's time over ours, the least", against_dhp, Limit::kAtLeast, 1);
  PrintFigure("8", "time with degrees that are powers of two over ours, the least", against_powers,
              Limit::kAtLeast, 1);
}

void PrintSmallGroups(uint64_t first) {
  double over = 0;
  constexpr int kProblems = 200;
  for (int i = 0; i < kProblems; ++i) {
    const double fill = 0.25 + 0.75 * (i % 4), ring = 0.2 * (i % 6);
    const reorder::ContextParallelInput input = reorder::DrawLongTail(
        1000 * (first + 1) + static_cast<uint64_t>(i), 8, 2 + static_cast<size_t>(i % 5), ring, fill);
    over += Value(reorder::PlanContextParallel(input)).time / reorder::ExhaustiveGroups(input) / kProblems;
  }
  PrintFigure("8", "up to 6 sequences on 8 ranks: time over that of brute force, mean of 200", over,
              Limit::kAtMost, 1.03);
}

int with_limit = 0, kept = 0;

}  // namespace

std::string RunScript(const std::string& python, const std::string& arguments, const std::string& input) {
  const std::string path = (std::filesystem::temp_directory_path() / "evenkeel-input.txt").string();
  std::ofstream(path) << input;
  const std::string command =
      absl::StrCat(python, " '", SourceDir(), "'/bench/", arguments, " < '", path, "'");
  FILE* pipe = popen(command.c_str(), "r");
  std::string answer;
  std::array<char, 1 << 16> piece;
  for (size_t got; pipe != nullptr && (got = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    answer.append(piece.data(), got);
  }
  if (pipe == nullptr || pclose(pipe) != 0) std::cerr << command << " failed\n", std::exit(1);
  std::filesystem::remove(path);
  return answer;
}

void PrintFigure(const char* point, const std::string& figure, double value, Limit kind, double limit) {
  const bool at_most = kind == Limit::kAtMost;
  const bool ok = at_most ? value <= limit : value >= limit;
  ++with_limit, kept += ok;
  std::printf("| %s | %s | %.5g | %s %.4g | %s |\n", point, figure.c_str(), value,
              at_most ? "<=" : ">=", limit, ok ? "met" : "**NOT met**");
  std::fflush(stdout);
}

void PrintFact(const char* point, const std::string& figure, const std::string& value) {
  std::printf("| %s | %s | %s | | |\n", point, figure.c_str(), value.c_str());
  std::fflush(stdout);
}

void PrintFact(const char* point, const std::string& figure, double value) {
  PrintFact(point, figure, absl::StrFormat("%.5g", value));
}

PhasesTime MeasurePhases(uint64_t seed, size_t phases, uint32_t ranks, uint32_t per_rank) {
  const reorder::ManyPhases step = reorder::DrawManyPhases(seed, ranks, per_rank, phases - 1);
  PhasesTime time{.ms = 1e300};
  for (int i = 0; i < 6; ++i) {
    const double start = ProcessorMs();
    reorder::ManyPhases copy = step;
    const reorder::PlannedPhases planned = Value(copy.Plan());
    time.ms = std::min(time.ms, ProcessorMs() - start);
    time.over_reachable = 0;
    const auto add = [&](const std::vector<uint32_t>& lengths, const std::vector<double>& loads) {
      const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
      const double mean = sum / static_cast<double>(loads.size());
      const double least = std::max(mean, 1.0 * *std::max_element(lengths.begin(), lengths.end()));
      time.over_reachable =
          std::max(time.over_reachable, *std::max_element(loads.begin(), loads.end()) / least);
    };
    add(copy.llm.tokens, planned.llm.load_after);
    for (size_t e = 0; e + 1 < phases; ++e) add(copy.encoders[e].length, planned.encoders[e].load_after);
  }
  return time;
}

void PrintFigures(const FigureOptions& options) {
  const auto point = [&](int number, const auto& print) {
    const auto& points = options.points;
    if (points.empty() || std::find(points.begin(), points.end(), number) != points.end()) print();
  };
  const uint64_t seed = options.seed;
  std::printf("| point | figure | measured | target | verdict |\n|---|---|---|---|---|\n");
  point(1, [&] { PrintRules(seed); });
  point(2, [&] { PrintSpeed(seed); });
  point(3, [&] { PrintBalance(seed); });
  point(4, [&] { PrintTight(seed); });
  point(5, [&] { PrintSmallPadded(seed), PrintNodeWise(seed, options.cbc_seconds); });
  point(6, [&] { PrintOrderFigures(seed); });
  point(7, [&] { PrintPacking(seed, options.trace); });
  point(8, [&] { PrintContextParallel(seed), PrintSmallGroups(seed); });
  point(9, [&] { PrintClaims(seed); });
  point(10, [&] { PrintSimpleMethods(seed); });
  point(11, [&] { PrintRivals(seed); });
  std::printf("\n%d of %d targets met, seed %llu, %.0f s\n", kept, with_limit,
              static_cast<unsigned long long>(seed), ProcessorMs() / 1e3);
}
