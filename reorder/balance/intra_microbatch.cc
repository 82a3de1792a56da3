// Intra-microbatch reordering: DistTrain, algorithm 1. The samples in descending order of size, each to the
// data-parallel group that has least so far.
//
// The paper then flattens the groups into one list that the trainer cuts into equal parts, which are the
// groups only where all have the same number of samples: so a group that has its number takes no more.
#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

std::vector<uint32_t> IntraMicrobatch(const BalanceProblem& problem) {
  const size_t ranks = problem.ranks->size(), units = problem.cost.size();
  // Where the number of units is no multiple of the ranks, `rest` groups have one more than the others.
  const size_t rest = units % ranks;
  return GreedyUpTo(problem.cost, ranks, (units + ranks - 1) / ranks, rest == 0 ? ranks : rest);
}

}  // namespace evenkeel::reorder
