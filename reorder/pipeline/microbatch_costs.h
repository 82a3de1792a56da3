// What the microbatches of all llm ranks cost in each column of a pipeline (pipeline_model.h).
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reorder/layout.h"
#include "reorder/loads.h"
#include "reorder/units.h"

namespace evenkeel::reorder {

// [columns][ranks * microbatches] forward costs in the job's units, those of rank 0 first.
using MicrobatchCosts = std::vector<std::vector<double>>;

// The llm's, which are column 0.
inline std::vector<double> LlmCosts(const Layout& layout, const LlmUnits& llm, uint32_t num_microbatches) {
  BatchCosts costs(*layout.llm, size_t{layout.llm_ranks.size()} * num_microbatches, 1);
  for (size_t s = 0; s < llm.rank.size(); ++s) {
    costs.Add(size_t{llm.rank[s]} * num_microbatches + llm.microbatch[s], 0, llm.tokens[s], llm.ChosenOf(s));
  }
  return costs.Loads();
}

// [columns][microbatches]
inline MicrobatchCosts CostsOfRank(const MicrobatchCosts& costs, size_t rank, uint32_t num_microbatches) {
  MicrobatchCosts of_rank;
  for (const std::vector<double>& column : costs) {
    const auto begin = column.begin() + static_cast<ptrdiff_t>(rank * num_microbatches);
    of_rank.emplace_back(begin, begin + num_microbatches);
  }
  return of_rank;
}

}  // namespace evenkeel::reorder
