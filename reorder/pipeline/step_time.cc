// Adds up the cost of every batch as it was planned, and runs each llm rank's pipeline with them.
#include "reorder/pipeline/step_time.h"

#include <algorithm>
#include <optional>

#include "reorder/keyed_shuffle.h"
#include "reorder/loads.h"
#include "reorder/pipeline/microbatch_costs.h"

namespace evenkeel::reorder {
namespace {

// [ranks * microbatches] of an encoder, padded where its batches are.
std::vector<double> EncoderCosts(const PhaseSpec& spec, const EncoderUnits& units, size_t ranks,
                                 uint32_t num_microbatches, const LlmUnits& llm) {
  BatchCosts costs(spec, ranks * num_microbatches, 1);
  for (size_t i = 0; i < units.item.size(); ++i) {
    costs.Add(size_t{units.rank[i]} * num_microbatches + llm.microbatch[units.sample[i]], 0, units.length[i]);
  }
  return costs.Loads();
}

// [microbatches] The busiest rank of each.
std::vector<double> Busiest(const std::vector<double>& costs, uint32_t num_microbatches) {
  std::vector<double> busiest(num_microbatches, 0);
  for (size_t b = 0; b < costs.size(); ++b) {
    busiest[b % num_microbatches] = std::max(busiest[b % num_microbatches], costs[b]);
  }
  return busiest;
}

// With every item where it was placed.
MicrobatchCosts CostsOf(const PipelineModel& model, const Layout& layout,
                        const std::vector<EncoderUnits>& encoders, uint32_t num_microbatches,
                        const LlmUnits& llm) {
  const size_t ranks = layout.llm_ranks.size();
  MicrobatchCosts costs(model.num_columns(), std::vector<double>(ranks * num_microbatches, 0));
  costs[0] = LlmCosts(layout, llm, num_microbatches);
  for (size_t e = 0; e < encoders.size(); ++e) {
    const std::optional<uint32_t> column = model.ColumnOfEncoder(e);
    if (!column.has_value()) continue;
    const std::vector<double> placed =
        EncoderCosts(*layout.encoders[e], encoders[e], layout.encoder_ranks[e].size(), num_microbatches, llm);
    const std::vector<double> busiest = Busiest(placed, num_microbatches);
    for (size_t b = 0; b < costs[*column].size(); ++b) {
      const size_t own = layout.neighbours[e].rank[b / num_microbatches], m = b % num_microbatches;
      costs[*column][b] += own == kNowhere ? busiest[m] : placed[own * num_microbatches + m];
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
  const MicrobatchCosts costs = CostsOf(model, layout, encoders, num_microbatches, llm);
  for (size_t r = 0; r < layout.llm_ranks.size(); ++r) {
    const PipelineProblem problem = model.Problem(CostsOfRank(costs, r, num_microbatches));
    if (!first.has_value()) first.emplace(problem);
    slowest = std::max(slowest, PipelineClock(problem, &*first).Try(order, 0));
  }
  return slowest;
}

}  // namespace evenkeel::reorder
