// Pipelines once more, as events, to compare reorder/pipeline/pipeline_schedule.h with: for tests and
// benchmarks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "reorder/pipeline/pipeline_schedule.h"

namespace evenkeel::reorder {

// A pipeline as events, written without a look at the library: every stage has a list of things to do, and
// the one that can start first anywhere starts next.
class EventSimulation {
 public:
  EventSimulation(const PipelineProblem& problem, const std::vector<uint32_t>& order)
      : problem_(problem), order_(order) {
    for (uint32_t s = 0; s < problem.stages; ++s) programs_.push_back(Program(s));
  }

  // The time of the last event; nothing where work is left that never can start.
  std::optional<double> Run() {
    std::vector<size_t> next(problem_.stages, 0);
    std::vector<double> free_at(problem_.stages, 0);
    double end = 0;
    while (true) {
      std::optional<uint32_t> first;
      double first_start = 0;
      for (uint32_t s = 0; s < problem_.stages; ++s) {
        if (next[s] == programs_[s].size()) continue;
        const std::optional<double> arrives = Arrival(programs_[s][next[s]]);
        if (!arrives) continue;
        const double start = std::max(free_at[s], *arrives);
        if (!first || start < first_start) first = s, first_start = start;
      }
      if (!first) break;
      const Work work = programs_[*first][next[*first]++];
      const auto& [backward, microbatch, chunk] = work;
      const auto& times = backward ? problem_.backward : problem_.forward;
      free_at[*first] = first_start + times[microbatch * problem_.num_chunks() + chunk];
      done_[work] = free_at[*first];
      end = std::max(end, free_at[*first]);
    }
    if (done_.size() != 2 * problem_.forward.size()) return std::nullopt;
    return end;
  }

 private:
  using Work = std::tuple<bool, uint32_t, uint32_t>;  // backward, microbatch, chunk

  std::vector<Work> Program(uint32_t stage) const {
    const uint32_t p = problem_.stages, v = problem_.virtual_stages;
    std::vector<Work> forwards, backwards;
    // Groups of p microbatches without virtual stages are the microbatches one by one.
    for (uint32_t begin = 0; begin < order_.size(); begin += p) {
      const uint32_t end = std::min<uint32_t>(begin + p, order_.size());
      for (uint32_t turn = 0; turn < v; ++turn) {
        for (uint32_t k = begin; k < end; ++k) {
          forwards.emplace_back(false, order_[k], turn * p + stage);
          backwards.emplace_back(true, order_[k], (v - 1 - turn) * p + stage);
        }
      }
    }
    size_t ahead = p - 1 - stage;
    if (problem_.schedule == PipelineSchedule::kInterleaved1F1B) ahead = 2 * ahead + (v - 1) * p;
    if (problem_.schedule == PipelineSchedule::kGPipe) ahead = forwards.size();
    std::vector<Work> program;
    size_t f = 0;
    while (f < std::min(ahead, forwards.size())) program.push_back(forwards[f++]);
    for (const Work& backward : backwards) {
      if (f < forwards.size()) program.push_back(forwards[f++]);
      program.push_back(backward);
    }
    return program;
  }

  std::optional<double> Arrival(const Work& work) const {
    const auto& [backward, microbatch, chunk] = work;
    if (!backward && chunk == 0) return 0.0;
    const bool turns = backward && chunk + 1 == problem_.num_chunks();
    const uint32_t from = turns ? chunk : backward ? chunk + 1 : chunk - 1;
    const auto at = done_.find({backward && !turns, microbatch, from});
    if (at == done_.end()) return std::nullopt;
    return at->second + (turns || problem_.stages == 1 ? 0 : problem_.transfer);
  }

  const PipelineProblem& problem_;
  const std::vector<uint32_t>& order_;
  std::vector<std::vector<Work>> programs_;
  std::map<Work, double> done_;
};

}  // namespace evenkeel::reorder
