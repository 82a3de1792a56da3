// Draws the steps, and measures their bins as `solve` measures a packing.
#include "cli/pack_report.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/progress.h"
#include "cli/quoted.h"
#include "core/status.h"
#include "reorder/pack/pack.h"
#include "stream/bin_packer.h"

namespace evenkeel::cli {
namespace {

struct Measured {
  reorder::PackFigures figures;
  std::vector<bool> has_capacity;  // [phases] in the job
  uint32_t bins = 0;
};

// A phase without a capacity has its fullest bin in place of one; nothing of it is printed.
uint64_t Fullest(const reorder::Packing& packing, const std::vector<uint32_t>& lengths) {
  std::vector<uint64_t> load(packing.num_bins, 1);
  for (size_t s = 0; s < lengths.size(); ++s) load[packing.bin[s]] += lengths[s];
  return load.empty() ? 1 : *std::max_element(load.begin(), load.end());
}

absl::StatusOr<Measured> Measure(const stream::Stream& stream, uint64_t first, uint64_t steps) {
  std::vector<SampleLengths> lengths;
  reorder::Packing packing;
  for (uint64_t step = first; step < first + steps; ++step) {
    EVENKEEL_ASSIGN_OR_RETURN(StepSamples samples,
                              stream::ReachSamples(stream, step, PrintEveryFewSeconds()));
    for (size_t b = 0; b + 1 < samples.bin_begin.size(); ++b, ++packing.num_bins) {
      packing.bin.insert(packing.bin.end(), samples.bin_begin[b + 1] - samples.bin_begin[b],
                         packing.num_bins);
    }
    std::move(samples.lengths.begin(), samples.lengths.end(), std::back_inserter(lengths));
  }
  reorder::PackInput input{.algorithm = stream.job.batch.pack.algorithm,
                           .devices = stream.job.batch.pack.bins};
  EVENKEEL_ASSIGN_OR_RETURN(input.phases, stream::PackPhasesOf(stream.job, lengths));
  Measured out{.bins = packing.num_bins};
  for (const reorder::PackPhase& phase : input.phases) {
    out.has_capacity.push_back(phase.capacity > 0);
    packing.capacities.push_back(phase.capacity > 0 ? phase.capacity : Fullest(packing, phase.lengths));
  }
  out.figures = reorder::MeasurePack(input, packing);
  return out;
}

std::string Table(const Measured& measured, uint64_t first, uint64_t steps) {
  std::string out =
      absl::StrFormat("steps %d to %d: %d bins, %.2f samples a bin\n%-12s %10s %8s %8s %8s %9s\n", first,
                      first + steps - 1, measured.bins, measured.figures.samples_per_bin, "phase", "capacity",
                      "fill", "uneven", "floor", "max/mean");
  for (size_t p = 0; p < measured.figures.phases.size(); ++p) {
    const reorder::PackedPhase& phase = measured.figures.phases[p];
    const std::string capacity = measured.has_capacity[p] ? absl::StrCat(phase.capacity) : "-";
    const std::string fill = measured.has_capacity[p] ? absl::StrFormat("%.4f", phase.fill) : "-";
    absl::StrAppendFormat(&out, "%-12s %10s %8s %8.4f %8.4f %9.4f\n", PhaseName(phase.phase), capacity, fill,
                          phase.distribution_ratio, phase.distribution_ratio_floor, phase.max_over_mean);
  }
  return out +
         "uneven: 1 - mean / max of a step's bins, the mean over steps; floor: no dealing of its samples has "
         "less\n";
}

std::string Json(const Measured& measured, uint64_t first, uint64_t steps) {
  std::string out =
      absl::StrFormat(R"({"first_step":%d,"steps":%d,"bins":%d,"samples_per_bin":%.17g,"phases":[)", first,
                      steps, measured.bins, measured.figures.samples_per_bin);
  for (size_t p = 0; p < measured.figures.phases.size(); ++p) {
    const reorder::PackedPhase& phase = measured.figures.phases[p];
    absl::StrAppendFormat(&out, R"(%s{"phase":%s)", p > 0 ? "," : "", Quoted(PhaseName(phase.phase)));
    if (measured.has_capacity[p]) {
      absl::StrAppendFormat(&out, R"(,"capacity":%d,"fill":%.17g)", phase.capacity, phase.fill);
    }
    absl::StrAppendFormat(
        &out, R"(,"distribution_ratio":%.17g,"distribution_ratio_floor":%.17g,"max_over_mean":%.17g})",
        phase.distribution_ratio, phase.distribution_ratio_floor, phase.max_over_mean);
  }
  return out + "]}\n";
}

}  // namespace

absl::StatusOr<std::string> PackReport(const stream::Stream& stream, uint64_t first, uint64_t steps,
                                       bool json) {
  if (stream.job.batch.pack.bins == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        stream.job.path, ": --steps measures bins, and the job has no batch.pack; leave --steps out"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const Measured measured, Measure(stream, first, steps));
  return json ? Json(measured, first, steps) : Table(measured, first, steps);
}

}  // namespace evenkeel::cli
