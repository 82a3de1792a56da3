// Tables of bench_planner: packing and context parallelism.
#pragma once

#include <vector>

#include "core/words.h"

// 1,200,000 samples drawn from the trace, nine mean samples per bin, 64 devices; then capacities from the
// data.
void PrintPackTable(const std::vector<evenkeel::SampleLengths>& trace);

// 512 sequences over 64 ranks of several distributions, memories and rings.
void PrintContextParallelTable();
