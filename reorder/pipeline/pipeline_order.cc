// Cuts a job's layers into stages, computes every rank's microbatch costs, and renumbers microbatches.
#include "reorder/pipeline/pipeline_order.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/status.h"
#include "reorder/loads.h"

namespace evenkeel::reorder {
namespace {

double Mean(std::span<const double> times) {
  return times.empty() ? 0 : std::accumulate(times.begin(), times.end(), 0.0) / times.size();
}

// The part of [begin, end) inside chunk `c` of `chunks` equal chunks of [0, whole), as a share of its length.
double ShareIn(uint32_t c, uint32_t chunks, double whole, double begin, double end) {
  if (end <= begin) return 0;
  const double low = std::max(begin, whole * c / chunks), high = std::min(end, whole * (c + 1) / chunks);
  return std::max(0.0, high - low) / (end - begin);
}

// Forward costs of every rank's microbatches, [ranks, microbatches]: of the llm, and of the encoders that run
// once per microbatch, as if all items were kept with their samples.
struct MicrobatchCosts {
  std::vector<double> llm, encoder;
};

MicrobatchCosts CostsOf(const Layout& layout, const std::vector<EncoderUnits>& encoders, const LlmUnits& llm,
                        uint32_t num_microbatches) {
  const size_t ranks = layout.llm_ranks.size();
  const auto batch = [&](uint32_t s) { return size_t{llm.rank[s]} * num_microbatches + llm.microbatch[s]; };
  BatchCosts of_llm(*layout.llm, ranks * num_microbatches, 1);
  for (uint32_t s = 0; s < llm.rank.size(); ++s) of_llm.Add(batch(s), 0, llm.tokens[s]);
  MicrobatchCosts costs{of_llm.Loads(), std::vector<double>(ranks * num_microbatches, 0)};
  for (size_t e = 0; e < encoders.size(); ++e) {
    if (layout.encoders[e]->runs != Runs::kOncePerMicrobatch) continue;
    const double per_llm_rank = static_cast<double>(ranks) / layout.encoder_ranks[e].size();
    for (size_t i = 0; i < encoders[e].item.size(); ++i) {
      costs.encoder[batch(encoders[e].sample[i])] +=
          CleanCost(layout.encoders[e]->cost, encoders[e].length[i]) * per_llm_rank;
    }
  }
  return costs;
}

}  // namespace

PipelineSchedule ScheduleOf(const Job& job) {
  return job.virtual_stages > 1 ? PipelineSchedule::kInterleaved1F1B : PipelineSchedule::k1F1B;
}

PipelineProblem CutIntoStages(const Job& job, std::span<const double> encoder, std::span<const double> llm) {
  PipelineProblem problem{
      .schedule = ScheduleOf(job), .stages = job.pipeline_stages, .virtual_stages = job.virtual_stages};
  const double of_encoder = Mean(encoder), whole = of_encoder + Mean(llm);
  const uint32_t chunks = problem.num_chunks();
  for (size_t m = 0; m < llm.size(); ++m) {
    for (uint32_t c = 0; c < chunks; ++c) {
      const double forward = encoder[m] * ShareIn(c, chunks, whole, 0, of_encoder) +
                             llm[m] * ShareIn(c, chunks, whole, of_encoder, whole);
      problem.forward.push_back(forward);
      problem.backward.push_back(kBackwardOverForward * forward);
    }
  }
  return problem;
}

absl::Status OrderForPipeline(const Job& job, const Layout& layout, const std::vector<EncoderUnits>& encoders,
                              OrderProblem order, uint32_t num_microbatches, LlmUnits& llm) {
  const size_t ranks = layout.llm_ranks.size();
  const MicrobatchCosts costs = CostsOf(layout, encoders, llm, num_microbatches);
  order.iterations = std::max<uint32_t>(1, static_cast<uint32_t>(order.iterations / ranks));
  std::vector<uint32_t> place(ranks * num_microbatches);
  std::optional<PipelineClock> first;  // the pipelines of all ranks have the same schedule
  for (size_t r = 0; r < ranks; ++r) {
    const size_t begin = r * num_microbatches;
    order.pipeline = CutIntoStages(job, {costs.encoder.data() + begin, num_microbatches},
                                   {costs.llm.data() + begin, num_microbatches});
    if (r == 0) {
      EVENKEEL_RETURN_IF_ERROR(CheckPipeline(order.pipeline));
      first.emplace(order.pipeline);
      order.alike = &*first;
    }
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<uint32_t> sequence, OrderMicrobatches(order));
    for (uint32_t k = 0; k < num_microbatches; ++k) place[begin + sequence[k]] = k;
  }
  for (size_t s = 0; s < llm.rank.size(); ++s) {
    llm.microbatch[s] = place[size_t{llm.rank[s]} * num_microbatches + llm.microbatch[s]];
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
