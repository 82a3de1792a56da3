// The packing tables of bench_planner: our bins next to those of OmniBal's method.
#include "bench/planner_pack.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>

#include "reorder/pack/pack.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

constexpr size_t kSamples = 1200000;
constexpr double kSamplesPerBin = 9;

reorder::PackInput DrawInput(const std::vector<SampleLengths>& trace, bool capacities_from_data) {
  reorder::Random random(9);
  reorder::PackInput input;
  for (Phase phase : kUsualPhases)
    input.phases.push_back({.phase = phase, .lengths = std::vector<uint32_t>(kSamples)});
  for (size_t s = 0; s < kSamples; ++s) {
    const SampleLengths& sample = trace[random.Below(trace.size())];
    input.phases[0].lengths[s] = sample.llm_length;
    for (const SampleItem& item : sample.items) {
      input.phases[UsualPhaseOf(item.medium).number()].lengths[s] += item.lengths.cost_length;
    }
  }
  std::erase_if(input.phases, [](const reorder::PackPhase& phase) {
    return std::all_of(phase.lengths.begin(), phase.lengths.end(),
                       [](uint32_t length) { return length == 0; });
  });
  for (reorder::PackPhase& phase : input.phases) {
    double total = 0;
    for (uint32_t length : phase.lengths) total += length;
    const uint64_t longest = *std::max_element(phase.lengths.begin(), phase.lengths.end());
    const uint64_t mean_samples = static_cast<uint64_t>(kSamplesPerBin * total / kSamples);
    if (!capacities_from_data) phase.capacity = std::max(longest, mean_samples);
  }
  return input;
}

void PrintPackRow(const reorder::PackInput& input, const char* capacities) {
  const std::clock_t start = std::clock();
  const auto packing = reorder::Pack(input);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (!packing.ok() || !reorder::PackCheck(input, *packing).ok()) {
    std::cerr << "pack: " << packing.status() << "\n";
    std::exit(1);
  }
  const reorder::PackFigures figures = reorder::MeasurePack(input, *packing);
  std::printf("| %s | %s | %.2f | %u (%llu) | %.4f |", capacities, input.algorithm.c_str(),
              figures.samples_per_bin, packing->num_bins, static_cast<unsigned long long>(figures.bins_bound),
              figures.fill);
  for (int p : {1, 0, 2}) {
    if (p >= static_cast<int>(figures.phases.size())) {
      std::printf(" |");
      continue;
    }
    const reorder::PackedPhase& phase = figures.phases[p];
    std::printf(" %.4f (%.4f) |", phase.distribution_ratio, phase.distribution_ratio_floor);
  }
  std::printf(" %.2f |\n", seconds);
  std::fflush(stdout);
}

}  // namespace

void PrintPackTable(const std::vector<SampleLengths>& trace) {
  std::printf(
      "| capacities | algorithm | samples per bin | bins (bound) | fill | vision distribution ratio (floor) "
      "| llm | "
      "audio | s |\n|---|---|---|---|---|---|---|---|---|\n"
      "| nine samples | limit | | | >= 0.97 | <= 0.02 | <= 0.05 | | <= 3 |\n");
  for (bool from_data : {false, true}) {
    reorder::PackInput input = DrawInput(trace, from_data);
    for (const char* algorithm : {"omnibal", "best_fit_decreasing", "even_fill"}) {
      input.algorithm = algorithm;
      PrintPackRow(input, from_data ? "from data" : "nine samples");
    }
  }
}
