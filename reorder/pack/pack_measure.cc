// Checks the rules of a packing and computes its figures, from pack.h alone and not from the algorithms.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "reorder/pack/pack.h"
#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {
namespace {

std::vector<uint64_t> LoadsOf(const Packing& packing, const std::vector<uint32_t>& lengths) {
  std::vector<uint64_t> load(packing.num_bins, 0);
  for (size_t s = 0; s < lengths.size(); ++s) load[packing.bin[s]] += lengths[s];
  return load;
}

// The longest sample of every bin.
std::vector<uint32_t> LongestOf(const Packing& packing, const std::vector<uint32_t>& lengths) {
  std::vector<uint32_t> longest(packing.num_bins, 0);
  for (size_t s = 0; s < lengths.size(); ++s) {
    longest[packing.bin[s]] = std::max(longest[packing.bin[s]], lengths[s]);
  }
  return longest;
}

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("packing: ", parts...));
}

// The number of steps that count: whole steps if there is one.
size_t CountedSteps(size_t bins, size_t devices) { return bins < devices ? (bins > 0) : bins / devices; }

double PadRatio(const Packing& packing, const std::vector<uint32_t>& lengths) {
  if (packing.num_bins == 0) return 0;
  const std::vector<uint64_t> load = LoadsOf(packing, lengths);
  const std::vector<uint32_t> longest = LongestOf(packing, lengths);
  std::vector<uint32_t> count(packing.num_bins, 0);
  for (uint32_t bin : packing.bin) ++count[bin];
  double ratio = 0;
  for (uint32_t b = 0; b < packing.num_bins; ++b) {
    const double padded = static_cast<double>(longest[b]) * count[b];
    if (padded > 0) ratio += 1 - static_cast<double>(load[b]) / padded;
  }
  return ratio / packing.num_bins;
}

}  // namespace

void MeasureSteps(const std::vector<uint64_t>& load, const std::vector<uint32_t>& longest, size_t devices,
                  double unit, std::span<const uint64_t> least, PackedPhase& phase) {
  const double total = static_cast<double>(std::accumulate(load.begin(), load.end(), uint64_t{0}));
  if (load.empty() || total == 0) return;
  const double mean_of_all = total / static_cast<double>(load.size());
  const size_t steps = CountedSteps(load.size(), devices);
  for (size_t step = 0; step < steps; ++step) {
    const size_t begin = step * devices, end = std::min(load.size(), begin + devices);
    double sum = 0, most = 0, longest_sample = 0;
    for (size_t b = begin; b < end; ++b) {
      sum += static_cast<double>(load[b]);
      most = std::max(most, static_cast<double>(load[b]));
      longest_sample = std::max(longest_sample, static_cast<double>(longest[b]));
    }
    if (most > 0) phase.distribution_ratio += 1 - sum / (most * static_cast<double>(end - begin));
    // Relative to the step's own mean, so it never exceeds the ratio.
    const double mean = sum / static_cast<double>(end - begin);
    double at_least = std::max(longest_sample, std::ceil(mean / unit) * unit);
    if (!least.empty()) at_least = std::max(at_least, static_cast<double>(least[step]));
    if (at_least > 0) phase.distribution_ratio_floor += 1 - mean / at_least;
    phase.max_over_mean = std::max(phase.max_over_mean, most / mean_of_all);
  }
  phase.distribution_ratio /= static_cast<double>(steps);
  phase.distribution_ratio_floor /= static_cast<double>(steps);
}

absl::Status PackCheck(const PackInput& input, const Packing& packing) {
  if (input.phases.empty() || packing.capacities.size() != input.phases.size()) {
    return Broken("the number of capacities differs from that of phases");
  }
  if (packing.bin.size() != input.phases.front().lengths.size()) {
    return Broken(packing.bin.size(), " of ", input.phases.front().lengths.size(), " samples have a bin");
  }
  std::vector<bool> used(packing.num_bins, false);
  for (size_t s = 0; s < packing.bin.size(); ++s) {
    if (packing.bin[s] >= packing.num_bins) {
      return Broken("sample ", s, " is in bin ", packing.bin[s], " of ", packing.num_bins);
    }
    used[packing.bin[s]] = true;
  }
  const auto empty = std::find(used.begin(), used.end(), false);
  if (empty != used.end()) return Broken("bin ", empty - used.begin(), " is empty");
  for (size_t p = 0; p < input.phases.size(); ++p) {
    const uint64_t asked = input.phases[p].capacity;
    const uint64_t capacity = packing.capacities[p];
    if (asked > 0 && asked != capacity) return Broken("a capacity is ", capacity, ", the given one ", asked);
    const std::vector<uint64_t> load = LoadsOf(packing, input.phases[p].lengths);
    for (size_t b = 0; b < load.size(); ++b) {
      if (load[b] <= capacity) continue;
      return Broken("bin ", b, " has ", load[b], " in phase ", std::string(PhaseName(input.phases[p].phase)),
                    ", capacity ", capacity);
    }
  }
  return absl::OkStatus();
}

PackFigures MeasurePack(const PackInput& input, const Packing& packing) {
  PackFigures figures;
  if (packing.num_bins == 0) return figures;
  for (size_t p = 0; p < input.phases.size(); ++p) {
    const std::vector<uint32_t>& lengths = input.phases[p].lengths;
    const std::vector<uint64_t> load = LoadsOf(packing, lengths);
    const uint64_t total = std::accumulate(load.begin(), load.end(), uint64_t{0});
    PackedPhase& phase = figures.phases.emplace_back();
    phase.phase = input.phases[p].phase;
    phase.capacity = packing.capacities[p];
    if (phase.capacity > 0) {
      phase.fill = static_cast<double>(total) / static_cast<double>(phase.capacity) / packing.num_bins;
    }
    const size_t steps = CountedSteps(load.size(), input.devices);
    const uint64_t unit = CommonDivisor(lengths);
    MeasureSteps(load, LongestOf(packing, lengths), input.devices, static_cast<double>(unit),
                 LeastFullest(packing, lengths, phase.capacity, unit, input.devices, steps), phase);
    figures.fill = std::max(figures.fill, phase.fill);
  }
  const PackProblem problem = MakePackProblem(input, packing.capacities);
  figures.bins_bound = FewestBinsOfTwoPhases(problem, FewestBins(problem));
  figures.samples_per_bin = static_cast<double>(packing.bin.size()) / packing.num_bins;
  figures.pad_ratio = PadRatio(packing, input.phases.front().lengths);
  return figures;
}

}  // namespace evenkeel::reorder
