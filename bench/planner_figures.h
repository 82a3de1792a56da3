// Summaries of bench_planner: each figure that the planner is held to, its limit, and whether it is kept.
#pragma once

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/words.h"

enum class Limit { kAtMost, kAtLeast };

// One row: `point` is that of the list of what the planner must show.
void PrintFigure(const char* point, const std::string& figure, double value, Limit kind, double limit);

// What cannot go wrong here; else the program ends with the error.
template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) std::cerr << value.status() << "\n", std::exit(1);
  return *std::move(value);
}

// Rows of points 1 and 5: random problems, all of whose solutions are checked; and of point 9: who is faster,
// by the model of a step.
void PrintRules();
void PrintClaims();

// One table over everything. `traces` are for packing; `cbc_seconds` is what the solver may take for each
// problem of node_wise, 0: the bound of the relaxation.
void PrintFigures(const std::vector<evenkeel::SampleLengths>& trace, int cbc_seconds);

// Planning time from 1,000 to 1,000,000 samples at 60 per rank.
struct Growth {
  std::vector<double> samples;
  std::vector<double> ms;
  double exponent = 0;  // of the fitted power; n log n has 1.10 over this range
};
Growth MeasureGrowth();
void PrintGrowth(const Growth& growth);
// The times, the fitted power and n log n, both axes logarithmic.
void DrawGrowth(const Growth& growth, const std::string& svg);
