// How the planning time grows with the number of samples: a fitted power, and its diagram.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "bench/heap_peak.h"
#include "bench/planner_figures.h"
#include "cli/svg.h"
#include "reorder/planner.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

constexpr int kRepeats = 5;

struct Planning {
  double ms = 0;
  double bytes = 0;          // a sample, at most, beyond the input
  double bytes_of_plan = 0;  // of them the plan's own
};

Planning PlanningOf(const std::vector<SampleLengths>& trace, size_t samples) {
  Job job;
  job.ranks_per_node = 8;
  const uint32_t ranks = static_cast<uint32_t>(samples / 60);
  for (Phase phase : kUsualPhases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase;
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
  }
  StepSamples step;
  step.lengths.assign(trace.begin(), trace.begin() + static_cast<ptrdiff_t>(samples));
  for (size_t i = 0; i < samples; ++i) step.refs.push_back({0, 0, i});
  Planning best{.ms = 1e300};
  for (int i = 0; i < kRepeats; ++i) {
    const size_t before = HeapNow().held;
    ResetHeapPeak();
    const std::clock_t start = std::clock();
    const auto plan = reorder::MakePlan(job, step, {});
    best.ms = std::min(best.ms, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    if (!plan.ok()) std::cerr << plan.status() << "\n", std::exit(1);
    best.bytes = static_cast<double>(HeapNow().peak - before) / static_cast<double>(samples);
    best.bytes_of_plan = static_cast<double>(HeapNow().held - before) / static_cast<double>(samples);
  }
  return best;
}

double GeometricMean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// Slope of the line of least squares through the logarithms.
double Slope(const std::vector<double>& x, const std::vector<double>& y) {
  const double mean_x = GeometricMean(x), mean_y = GeometricMean(y);
  double over = 0, under = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    over += std::log(x[i] / mean_x) * std::log(y[i] / mean_y);
    under += std::log(x[i] / mean_x) * std::log(x[i] / mean_x);
  }
  return over / under;
}

}  // namespace

Growth MeasureGrowth() {
  const std::vector<SampleLengths> trace = reorder::DrawOmniTrace(2024, 1000000);
  Growth growth;
  for (size_t samples : {1000u, 3200u, 10000u, 32000u, 100000u, 320000u, 1000000u}) {
    growth.samples.push_back(static_cast<double>(samples / 60 * 60));
    const Planning planning = PlanningOf(trace, samples / 60 * 60);
    growth.ms.push_back(planning.ms);
    growth.bytes.push_back(planning.bytes);
    growth.bytes_of_plan.push_back(planning.bytes_of_plan);
  }
  growth.exponent = Slope(growth.samples, growth.ms);
  return growth;
}

void PrintGrowth(const Growth& growth) {
  std::printf("| samples | ms | bytes a sample at most | of them the plan |\n|---|---|---|---|\n");
  for (size_t i = 0; i < growth.ms.size(); ++i)
    std::printf("| %.0f | %.2f | %.0f | %.0f |\n", growth.samples[i], growth.ms[i], growth.bytes[i],
                growth.bytes_of_plan[i]);
  std::printf("\nfitted exponent %.3f; n log n over this range: 1.10\n", growth.exponent);
}

void DrawGrowth(const Growth& growth, const std::string& svg) {
  constexpr double kWidth = 480, kHeight = 360, kMargin = 50;
  const auto x = [](double samples) {
    return kMargin + (std::log10(samples) - 2.9) / 3.2 * (kWidth - 2 * kMargin);
  };
  const auto y = [](double ms) {
    return kHeight - kMargin - (std::log10(ms) + 2) / 5 * (kHeight - 2 * kMargin);
  };
  char title[64];
  std::snprintf(title, sizeof title, "n to the %.3f (blue); n log n (grey)", growth.exponent);
  cli::Svg picture(kWidth, kHeight, title);
  for (int power = 3; power <= 6; ++power) {
    picture.Label(x(std::pow(10, power)), kHeight - kMargin + 18, "1e" + std::to_string(power),
                  cli::Anchor::kMiddle);
  }
  for (int power = -2; power <= 3; ++power) {
    const double at = y(std::pow(10, power));
    picture.Label(kMargin - 6, at + 4, "1e" + std::to_string(power), cli::Anchor::kEnd);
    picture.Line(kMargin, at, kWidth - kMargin, at, "#dddddd");
  }
  picture.Label(kWidth / 2, kHeight - 12, "samples", cli::Anchor::kMiddle);
  picture.Label(kWidth - kMargin, kMargin - 8, "ms, one thread", cli::Anchor::kEnd);
  // The fitted line goes through the geometric means, and so does the other curve.
  const double n = GeometricMean(growth.samples), ms = GeometricMean(growth.ms);
  const auto curve = [&](const char* colour, const auto& value) {
    for (size_t i = 1; i < growth.samples.size(); ++i) {
      const double from = growth.samples[i - 1], to = growth.samples[i];
      picture.Line(x(from), y(value(from)), x(to), y(value(to)), colour);
    }
  };
  curve("#3366cc", [&](double samples) { return ms * std::pow(samples / n, growth.exponent); });
  curve("#999999", [&](double samples) { return ms * samples * std::log(samples) / (n * std::log(n)); });
  for (size_t i = 0; i < growth.ms.size(); ++i) {
    picture.Rectangle(x(growth.samples[i]) - 3, y(growth.ms[i]) - 3, 6, 6, "#cc3333");
  }
  const absl::Status written = picture.Write(svg);
  if (!written.ok()) std::cerr << written << "\n", std::exit(1);
}
