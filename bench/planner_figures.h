// Summaries of bench_planner: each figure that the planner is held to, its limit, and whether it is kept.
#pragma once

#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/words.h"

enum class Limit { kAtMost, kAtLeast };

// One row: `point` is that of the list of what the planner must show. Without a limit: for comparison.
void PrintFigure(const char* point, const std::string& figure, double value, Limit kind, double limit);
void PrintFact(const char* point, const std::string& figure, const std::string& value);
void PrintFact(const char* point, const std::string& figure, double value);

// Processor time of this process so far.
inline double ProcessorMs() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// What cannot go wrong here; else the program ends with the error.
template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) std::cerr << value.status() << "\n", std::exit(1);
  return *std::move(value);
}

// What a script of bench/ prints, by `python`, with `arguments` (for a shell) and `input`. A script that fails ends the
// program.
std::string RunScript(const std::string& python, const std::string& arguments, const std::string& input);

// Rows of points 1 and 5: random problems, all of whose solutions are checked, and small ones whose optimum
// is known; and of point 9: who is faster, by the model of a step. Other seeds draw other problems.
void PrintRules(uint64_t seed);
void PrintSmallPadded(uint64_t seed);
void PrintClaims(uint64_t seed);
// Of point 10: problems for which simple methods are hard to beat.
void PrintSimpleMethods(uint64_t seed);
// Of point 11: other projects' own code on the same problems (planner_rivals.py), where EVENKEEL_RIVALS names the folder
// that it was installed in; else one row that says so.
void PrintRivals(uint64_t seed);

struct FigureOptions {
  std::vector<int> points;  // 1 to 11; empty: all
  uint64_t seed = 0;
  std::vector<evenkeel::SampleLengths> trace;  // for packing
  int cbc_seconds = 0;  // what the solver may take for each problem of node_wise; 0: the relaxation's bound
};

// One table, and how many of its rows with a limit keep it.
void PrintFigures(const FigureOptions& options);

// Of the planner's core: the least processor time of several plans, layout and copies of the step included,
// and the largest max/mean of any phase, over what its longest unit alone forces.
struct PhasesTime {
  double ms = 0;
  double over_reachable = 0;
};
PhasesTime MeasurePhases(uint64_t seed, size_t phases, uint32_t ranks, uint32_t per_rank);

// Planning time from 1,000 to 1,000,000 samples at 60 per rank.
struct Growth {
  std::vector<double> samples;
  std::vector<double> ms;
  std::vector<double> bytes;          // of the heap, a sample, at most, beyond the input
  std::vector<double> bytes_of_plan;  // of them those of the plan that is returned
  double exponent = 0;                // of the fitted power; n log n has 1.10 over this range
};
Growth MeasureGrowth();
void PrintGrowth(const Growth& growth);
// The times, the fitted power and n log n, both axes logarithmic.
void DrawGrowth(const Growth& growth, const std::string& svg);
