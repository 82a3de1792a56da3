// Builds problem messages from the samples of a trace.
#include "cli/trace_problems.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "reorder/item_phases.h"

namespace evenkeel::cli {

pb::Problem PackFromTrace(const LengthTrace& trace, const PackTraceOptions& options) {
  const std::vector<SampleLengths>& samples = trace.samples;
  const reorder::ItemPhases table(trace.phases);
  std::vector<std::vector<uint32_t>> lengths(trace.phases.size(), std::vector<uint32_t>(samples.size(), 0));
  for (size_t s = 0; s < samples.size(); ++s) {
    lengths[0][s] = samples[s].llm_length;
    for (const SampleItem& item : samples[s].items) lengths[*table.Find(item)][s] += item.lengths.cost_length;
  }
  pb::Problem problem;
  pb::PackProblem& pack = *problem.mutable_pack();
  pack.set_algorithm(options.algorithm);
  pack.set_devices(options.devices);
  pack.set_seed(options.seed);
  for (size_t p = 0; p < trace.phases.size(); ++p) {
    const Phase& named = trace.phases[p];
    const std::vector<uint32_t>& of_phase = lengths[p];
    const uint64_t total = std::accumulate(of_phase.begin(), of_phase.end(), uint64_t{0});
    if (total == 0 && named != Phase::kLlm) continue;
    pb::PackPhase& phase = *pack.add_phases();
    phase.set_name(std::string(PhaseName(named)));
    phase.mutable_length()->Assign(of_phase.begin(), of_phase.end());
    if (options.samples_per_bin == 0 || samples.empty()) continue;
    const double mean = static_cast<double>(total) / static_cast<double>(samples.size());
    const uint64_t longest = *std::max_element(of_phase.begin(), of_phase.end());
    phase.set_capacity(std::max(longest, static_cast<uint64_t>(options.samples_per_bin * mean)));
  }
  return problem;
}

pb::Problem ContextParallelFromTrace(const std::vector<SampleLengths>& samples,
                                     const ContextParallelTraceOptions& options) {
  pb::Problem problem;
  pb::ContextParallelProblem& message = *problem.mutable_context_parallel();
  message.set_algorithm(options.algorithm);
  message.set_ranks(options.ranks);
  if (options.tokens_per_rank > 0) {
    message.set_memory_per_rank(options.tokens_per_rank);
    message.set_memory_per_token(1);
  }
  *message.mutable_cost() = options.cost;
  for (const SampleLengths& sample : samples) message.add_tokens(sample.llm_length);
  return problem;
}

}  // namespace evenkeel::cli
