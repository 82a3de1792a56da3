// No balancing: samples are assigned in turn, items stay with their sample. The baseline of the other
// algorithms.
#include "reorder/balance/balance.h"

namespace evenkeel::reorder {

std::vector<uint32_t> None(const BalanceProblem& problem) {
  if (problem.ItemsHaveHomes()) return problem.DefaultRanks();
  std::vector<uint32_t> rank(problem.cost.size());
  for (uint32_t i = 0; i < rank.size(); ++i) rank[i] = i % problem.ranks->size();
  return rank;
}

}  // namespace evenkeel::reorder
