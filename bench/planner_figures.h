// Summaries of bench_planner: each figure that the planner is held to, its limit, and whether it is kept.
#pragma once

#include <string>
#include <vector>

#include "core/words.h"

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
