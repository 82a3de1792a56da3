// Microbatches for regroup: cuts of the batch, sorted by length, and what each costs at least.
#pragma once

#include <cstdint>
#include <vector>

#include "reorder/context_parallel_problem.h"

namespace evenkeel::reorder {

// Sequences of every microbatch, dearest first.
using Cut = std::vector<std::vector<uint32_t>>;

// The best cuts by the relaxation, into as many microbatches as memory asks for, and one and two more.
std::vector<Cut> CutByLength(const ContextParallelProblem& problem);

}  // namespace evenkeel::reorder
