// Adds up the cost of every batch as it was planned, and runs each llm rank's pipeline with them.
#include "reorder/pipeline/step_time.h"

#include <algorithm>
#include <optional>

#include "reorder/keyed_shuffle.h"
#include "reorder/loads.h"

namespace evenkeel::reorder {
namespace {

// [ranks][microbatches] of an encoder, padded where its batches are.
std::vector<std::vector<double>> BatchesOf(const PhaseSpec& spec, const EncoderUnits& units, size_t ranks,
                                           uint32_t num_microbatches, const LlmUnits& llm) {
  BatchCosts costs(spec, ranks * num_microbatches, 1);
  for (size_t i = 0; i < units.item.size(); ++i) {
    costs.Add(size_t{units.rank[i]} * num_microbatches + llm.microbatch[units.sample[i]], 0, units.length[i]);
  }
  const std::vector<double> loads = costs.Loads();
  std::vector<std::vector<double>> batches;
  for (size_t r = 0; r < ranks; ++r) {
    const auto begin = loads.begin() + static_cast<ptrdiff_t>(r * num_microbatches);
    batches.emplace_back(begin, begin + num_microbatches);
  }
  return batches;
}

// [microbatches] The busiest rank of each.
std::vector<double> Busiest(const std::vector<std::vector<double>>& batches) {
  std::vector<double> busiest = batches.front();
  for (const std::vector<double>& of_rank : batches) {
    for (size_t m = 0; m < busiest.size(); ++m) busiest[m] = std::max(busiest[m], of_rank[m]);
  }
  return busiest;
}

// [llm ranks][columns][microbatches]
using ColumnsOfRanks = std::vector<std::vector<std::vector<double>>>;

ColumnsOfRanks CostsOf(const PipelineModel& model, const Layout& layout,
                       const std::vector<EncoderUnits>& encoders, uint32_t num_microbatches,
                       const LlmUnits& llm) {
  const size_t ranks = layout.llm_ranks.size();
  ColumnsOfRanks costs(ranks, {model.num_columns(), std::vector<double>(num_microbatches, 0)});
  BatchCosts of_llm(*layout.llm, ranks * num_microbatches, 1);
  for (size_t s = 0; s < llm.tokens.size(); ++s) {
    of_llm.Add(size_t{llm.rank[s]} * num_microbatches + llm.microbatch[s], 0, llm.tokens[s]);
  }
  const std::vector<double> loads = of_llm.Loads();
  for (size_t b = 0; b < loads.size(); ++b) costs[b / num_microbatches][0][b % num_microbatches] = loads[b];
  for (size_t e = 0; e < encoders.size(); ++e) {
    const std::optional<uint32_t> column = model.ColumnOfEncoder(e);
    if (!column.has_value()) continue;
    const std::vector<std::vector<double>> batches =
        BatchesOf(*layout.encoders[e], encoders[e], layout.encoder_ranks[e].size(), num_microbatches, llm);
    const std::vector<double> busiest = Busiest(batches);
    for (size_t r = 0; r < ranks; ++r) {
      const uint32_t own = layout.neighbours[e].rank[r];
      const std::vector<double>& waited_for = own == kNowhere ? busiest : batches[own];
      for (size_t m = 0; m < waited_for.size(); ++m) costs[r][*column][m] += waited_for[m];
    }
  }
  return costs;
}

}  // namespace

double PipelineStepTime(const PipelineModel& model, const Layout& layout,
                        const std::vector<EncoderUnits>& encoders, uint32_t num_microbatches,
                        const LlmUnits& llm) {
  const std::vector<uint32_t> order = InOrder(num_microbatches);
  std::optional<PipelineClock> first;  // whose schedule the others have, too
  double slowest = 0;
  for (const auto& costs : CostsOf(model, layout, encoders, num_microbatches, llm)) {
    const PipelineProblem problem = model.Problem(costs);
    if (!first.has_value()) first.emplace(problem);
    slowest = std::max(slowest, PipelineClock(problem, &*first).Try(order, 0));
  }
  return slowest;
}

}  // namespace evenkeel::reorder
