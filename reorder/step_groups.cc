// Makes a context-parallel problem of a step's samples, and the plan's groups of its solution.
#include "reorder/step_groups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/context_parallel/waves.h"
#include "reorder/loads.h"

namespace evenkeel::reorder {
namespace {

// [samples] The sum of squared rows of images and videos, each of which sees itself in both directions.
std::vector<double> SquaredMedia(const Job& job, const Layout& layout, size_t samples,
                                 const std::vector<EncoderUnits>& encoders) {
  std::vector<double> squares(samples, 0);
  for (size_t e = 0; e < encoders.size() && job.groups.media_attend_fully; ++e) {
    const EncoderUnits& units = encoders[e];
    for (size_t i = 0; i < units.item.size(); ++i) {
      const Medium medium =
          units.turn[i] == EncoderUnits::TurnOf(Medium::kImage) ? Medium::kImage : Medium::kVideo;
      if (units.turn[i] == EncoderUnits::TurnOf(Medium::kAudio)) continue;
      // Of several encoders of an item the first has the rows of the sequence.
      if (job.TowerOf(layout.encoders[e]->phase, medium) != 0) continue;
      squares[units.sample[i]] += static_cast<double>(units.rows[i]) * units.rows[i];
    }
  }
  return squares;
}

// Ranks of the llm on the node that has the fewest: no larger group lies within one node everywhere.
uint32_t RanksOfANode(const PhaseRanks& ranks) {
  std::map<uint32_t, uint32_t> on_node;
  for (uint32_t node : ranks.node) ++on_node[node];
  uint32_t fewest = static_cast<uint32_t>(ranks.size());
  for (const auto& [node, count] : on_node) fewest = std::min(fewest, count);
  return fewest;
}

ContextParallelInput InputOf(const Job& job, const Layout& layout, const LlmUnits& llm,
                             const std::vector<EncoderUnits>& encoders) {
  const GroupSpec& groups = job.groups;
  const Cost& cost = layout.llm->cost;
  const double factor = 1 + cost.mask_factor;
  ContextParallelInput input{.ranks = static_cast<uint32_t>(layout.llm_ranks.size()),
                             .ranks_per_node = RanksOfANode(layout.llm_ranks),
                             .memory_per_rank = static_cast<double>(groups.tokens_per_rank),
                             .memory_per_token = 1,
                             .cost = {.attention = cost.quadratic * factor,
                                      .linear = cost.linear * factor,
                                      .constant = cost.constant * factor,
                                      .ring = groups.ring,
                                      .ring_between_nodes = groups.ring_between_nodes,
                                      .ring_constant = groups.ring_constant},
                             .degrees = groups.sizes,
                             .algorithm = groups.algorithm};
  const std::vector<double> squares = SquaredMedia(job, layout, llm.tokens.size(), encoders);
  for (size_t s = 0; s < llm.tokens.size(); ++s) {
    const double tokens = llm.tokens[s], first = llm.ChosenOf(s);
    // The tokens of a pair's sequences do not see each other.
    const double apart = -2 * first * (tokens - first);
    input.sequences.push_back({llm.tokens[s], tokens > 0 ? (squares[s] + apart) / (tokens * tokens) : 0});
  }
  return input;
}

}  // namespace

absl::Status CheckGroups(const Job& job, const Layout& layout) {
  if (!job.groups.given) return absl::OkStatus();
  if (!PlanWaves({.degrees = {1}, .algorithm = job.groups.algorithm}).ok()) {
    return absl::InvalidArgumentError(absl::StrCat("topology.groups.algorithm: '", job.groups.algorithm,
                                                   "' is unknown; expected one of ", WaveAlgorithmNames()));
  }
  const absl::Status status = PlanWaves(InputOf(job, layout, {}, {})).status();
  return status.ok() ? status : AddContext(status, "cost of the phase llm, with topology.groups");
}

absl::StatusOr<StepGroups> PlanStepGroups(const Job& job, const Layout& layout, const LlmUnits& llm,
                                          const std::vector<EncoderUnits>& encoders) {
  const ContextParallelInput input = InputOf(job, layout, llm, encoders);
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<Wave> waves, PlanWaves(input));
  const uint32_t multiple = std::max(1u, job.microbatch.count_multiple);
  const uint32_t count = (static_cast<uint32_t>(waves.size()) + multiple - 1) / multiple * multiple;
  StepGroups out{.num_microbatches = count,
                 .groups = std::vector<RankGroup>(input.ranks * size_t{count}),
                 .rank = std::vector<uint32_t>(llm.tokens.size()),
                 .microbatch = std::vector<uint32_t>(llm.tokens.size())};
  for (uint32_t r = 0; r < input.ranks; ++r) {
    for (uint32_t m = 0; m < count; ++m) out.groups[r * size_t{count} + m] = {r, 1};
  }
  for (uint32_t m = 0; m < waves.size(); ++m) {
    for (const PlacedGroup& group : waves[m]) {
      for (uint32_t r = group.ranks.first; r < group.ranks.first + group.ranks.size; ++r) {
        out.groups[r * size_t{count} + m] = group.ranks;
      }
      for (uint32_t s : group.sequences) out.rank[s] = group.ranks.first, out.microbatch[s] = m;
    }
  }
  return out;
}

void MeasureGroupLoads(const Cost& cost, const LlmUnits& llm, std::span<const RankGroup> groups,
                       PhasePlan& llm_plan) {
  const size_t ranks = llm_plan.ranks.size(), microbatches = llm_plan.num_microbatches;
  std::vector<double> load(ranks * microbatches, 0);
  std::vector<uint64_t> tokens(ranks * microbatches, 0);
  for (size_t s = 0; s < llm.tokens.size(); ++s) {
    const size_t batch = llm.rank[s] * microbatches + llm.microbatch[s];
    load[batch] += CleanCost(cost, llm.tokens[s], llm.ChosenOf(s));
    tokens[batch] += llm.tokens[s];
  }
  llm_plan.load_after.assign(ranks, 0);
  llm_plan.tokens_after.assign(ranks, 0);
  for (uint32_t r = 0; r < ranks; ++r) {
    for (size_t m = 0; m < microbatches; ++m) {
      const RankGroup& group = groups[r * microbatches + m];
      const size_t batch = group.first * microbatches + m;
      const uint64_t index = r - group.first;
      llm_plan.load_after[r] += load[batch] / group.size;
      // Shares that differ by a token at most, and add up.
      llm_plan.tokens_after[r] +=
          tokens[batch] * (index + 1) / group.size - tokens[batch] * index / group.size;
    }
  }
}

}  // namespace evenkeel::reorder
