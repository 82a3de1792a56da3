// Microbatches for regroup: cuts of the batch, sorted by length, and a lower bound on the time of each.
#pragma once

#include <cstdint>
#include <vector>

#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {

struct Cut {
  double time = 0;                                  // by the relaxation
  std::vector<std::vector<uint32_t>> microbatches;  // sequences of each, heaviest first
  std::vector<double> times;                        // of each, by the relaxation
};

// The best cuts by the relaxation, into as many microbatches as memory requires, and one and two more.
std::vector<Cut> CutByLength(const ContextParallelProblem& problem);

}  // namespace evenkeel::reorder
