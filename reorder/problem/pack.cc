// The kind `pack` of problems: reorder/pack/pack.h as messages.
#include "reorder/pack/pack.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/named_phases.h"
#include "reorder/problem/kinds.h"

namespace evenkeel::reorder {
namespace {

absl::StatusOr<PackInput> ToPackInput(const pb::PackProblem& problem) {
  PackInput input{.seed = problem.seed()};
  if (!problem.algorithm().empty()) input.algorithm = problem.algorithm();
  if (problem.devices() > 0) input.devices = problem.devices();
  if (problem.iterations() > 0) input.iterations = problem.iterations();
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<Phase> phases, PhasesOf(problem.phases(), "pack.phases"));
  for (int p = 0; p < problem.phases_size(); ++p) {
    const pb::PackPhase& message = problem.phases(p);
    input.phases.push_back({.phase = phases[static_cast<size_t>(p)],
                            .capacity = message.capacity(),
                            .target = message.target(),
                            .lengths = {message.length().begin(), message.length().end()}});
  }
  return input;
}

pb::PackSolution ToMessage(const Packing& packing, const PackFigures& figures) {
  pb::PackSolution message;
  message.set_num_bins(packing.num_bins);
  message.mutable_bin()->Assign(packing.bin.begin(), packing.bin.end());
  message.set_fill(figures.fill);
  message.set_bins_bound(figures.bins_bound);
  message.set_samples_per_bin(figures.samples_per_bin);
  message.set_pad_ratio(figures.pad_ratio);
  for (const PackedPhase& phase : figures.phases) {
    pb::PackedPhase& out = *message.add_phases();
    out.set_name(std::string(PhaseName(phase.phase)));
    out.set_capacity(phase.capacity);
    out.set_fill(phase.fill);
    out.set_distribution_ratio(phase.distribution_ratio);
    out.set_distribution_ratio_floor(phase.distribution_ratio_floor);
    out.set_max_over_mean(phase.max_over_mean);
  }
  return message;
}

}  // namespace

absl::Status SolvePack(const pb::PackProblem& problem, pb::Solution& solution) {
  EVENKEEL_ASSIGN_OR_RETURN(const PackInput input, ToPackInput(problem));
  const StopWatch watch;
  EVENKEEL_ASSIGN_OR_RETURN(const Packing packing, Pack(input));
  solution.set_wall_ms(watch.Milliseconds());
  EVENKEEL_RETURN_IF_ERROR(PackCheck(input, packing));
  *solution.mutable_pack() = ToMessage(packing, MeasurePack(input, packing));
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
