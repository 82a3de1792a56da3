#include "reorder/pipeline_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/status.h"
#include "reorder/loads.h"

namespace evenkeel {
namespace {

double Mean(std::span<const double> times) {
  return times.empty() ? 0 : std::accumulate(times.begin(), times.end(), 0.0) / times.size();
}

// How much of [begin, end) lies in chunk `c` of `chunks` equal ones of [0, whole), as a share of its length.
double ShareIn(uint32_t c, uint32_t chunks, double whole, double begin, double end) {
  if (end <= begin) return 0;
  const double low = std::max(begin, whole * c / chunks), high = std::min(end, whole * (c + 1) / chunks);
  return std::max(0.0, high - low) / (end - begin);
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

namespace reorder {
namespace {

// The place of every microbatch in the order.
absl::StatusOr<std::vector<uint32_t>> Places(OrderProblem& order, PipelineProblem pipeline) {
  order.pipeline = std::move(pipeline);
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<uint32_t> sequence, OrderMicrobatches(order));
  std::vector<uint32_t> place(sequence.size());
  for (uint32_t k = 0; k < sequence.size(); ++k) place[sequence[k]] = k;
  return place;
}

// The mean rank's time of each microbatch index in the encoders that run once per microbatch.
std::vector<double> EncoderTimes(const Layout& layout, const std::vector<EncoderUnits>& encoders,
                                 const LlmUnits& llm, uint32_t num_microbatches, bool& any) {
  std::vector<double> times(num_microbatches, 0);
  any = false;
  for (size_t e = 0; e < encoders.size(); ++e) {
    if (layout.encoders[e]->runs != Runs::kOncePerMicrobatch) continue;
    any = true;
    for (size_t i = 0; i < encoders[e].item.size(); ++i) {
      times[llm.microbatch[encoders[e].sample[i]]] += encoders[e].cost[i] / layout.encoder_ranks[e].size();
    }
  }
  return times;
}

}  // namespace

absl::Status OrderForPipeline(const Job& job, const Layout& layout, const std::vector<EncoderUnits>& encoders,
                              OrderProblem order, uint32_t num_microbatches, LlmUnits& llm) {
  const size_t ranks = layout.llm_ranks.size();
  BatchCosts costs(layout.llm->batching, ranks * num_microbatches);
  for (size_t s = 0; s < llm.rank.size(); ++s) {
    costs.Add(size_t{llm.rank[s]} * num_microbatches + llm.microbatch[s], llm.cost[s]);
  }
  const std::vector<double> of_rank = costs.PerRank(1);  // [ranks, microbatches]
  bool together = false;
  const std::vector<double> encoder = EncoderTimes(layout, encoders, llm, num_microbatches, together);
  std::vector<std::vector<uint32_t>> place(ranks);
  if (together) {
    std::vector<double> mean(num_microbatches, 0);
    for (size_t b = 0; b < of_rank.size(); ++b) mean[b % num_microbatches] += of_rank[b] / ranks;
    EVENKEEL_ASSIGN_OR_RETURN(place[0], Places(order, CutIntoStages(job, encoder, mean)));
    std::fill(place.begin() + 1, place.end(), place[0]);
  } else {
    order.iterations = std::max<uint32_t>(1, order.iterations / ranks);
    for (size_t r = 0; r < ranks; ++r) {
      const std::span<const double> mine(of_rank.data() + r * num_microbatches, num_microbatches);
      EVENKEEL_ASSIGN_OR_RETURN(place[r], Places(order, CutIntoStages(job, encoder, mine)));
    }
  }
  for (size_t s = 0; s < llm.rank.size(); ++s) llm.microbatch[s] = place[llm.rank[s]][llm.microbatch[s]];
  return absl::OkStatus();
}

}  // namespace reorder
}  // namespace evenkeel
