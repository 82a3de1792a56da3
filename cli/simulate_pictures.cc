// Draws the pictures of `evenkeel simulate`: loads per rank, the slowest pipeline, groups of ranks, and the
// distribution of lengths per phase (modality composition incoherence in OrchMLLM).
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/simulate_report.h"
#include "cli/svg.h"
#include "core/status.h"
#include "reorder/item_phases.h"

namespace evenkeel::cli {
namespace {

constexpr double kWidth = 960, kLeft = 70, kRight = 40;
constexpr std::string_view kForward = "#88aadd", kBackward = "#336699", kBubble = "#f3d9d9",
                           kEncoders = "#d9d9d9";

std::string Percent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

// Bars from the bottom, and a line at their mean.
void DrawBars(Svg& svg, double top, double height, const std::vector<double>& values, size_t colour,
              const std::string& name) {
  const double largest = *std::max_element(values.begin(), values.end());
  double mean = 0;
  for (double value : values) mean += value / values.size();
  svg.Label(kLeft, top - 8, absl::StrFormat("%s: max/mean %.3f", name, mean > 0 ? largest / mean : 1));
  svg.Line(kLeft, top + height, kWidth - kRight, top + height, "#999999");
  if (largest <= 0) return;
  const double step = (kWidth - kLeft - kRight) / values.size();
  for (size_t r = 0; r < values.size(); ++r) {
    const double tall = height * values[r] / largest;
    svg.Rectangle(kLeft + r * step, top + height - tall, std::max(0.5, step * 0.85), tall, Colour(colour),
                  absl::StrFormat("rank %d: %.4g s", r, values[r]));
  }
  const double at = top + height * (1 - mean / largest);
  svg.Line(kLeft, at, kWidth - kRight, at, "#cc0000");
  // to the right of the plot, where no bar covers it
  svg.Label(kWidth - kRight + 3, at + 4, "mean", Anchor::kStart, 11, "#cc0000");
  svg.Label(kLeft - 6, top + 4, absl::StrFormat("%.3g s", largest), Anchor::kEnd, 11);
}

absl::Status DrawLoads(const PolicyFigures& figures, const std::string& path) {
  const auto& phases = figures.first.phases;
  Svg svg(kWidth, 60 + 190.0 * phases.size(), absl::StrCat("Time per rank: ", std::string(figures.name)));
  for (size_t p = 0; p < phases.size(); ++p) {
    DrawBars(svg, 70 + 190.0 * p, 130, phases[p].seconds, p, std::string(PhaseName(phases[p].phase)));
    svg.Label(kWidth / 2, 70 + 190.0 * p + 148, absl::StrFormat("%d ranks", phases[p].seconds.size()),
              Anchor::kMiddle, 11);
  }
  return svg.Write(path);
}

absl::Status DrawPipeline(const PolicyFigures& figures, const std::string& path) {
  const reorder::PipelineTimeline& timeline = figures.first.slowest;
  const size_t stages = timeline.busy.size();
  const double row = 34, top = 64, scale = (kWidth - kLeft - kRight) / timeline.iteration_time;
  Svg svg(kWidth, top + row * stages + 60,
          absl::StrCat("Slowest pipeline: ", std::string(figures.name), ", bubbles ",
                       Percent(timeline.bubble_share)));
  for (size_t s = 0; s < stages; ++s) {
    svg.Label(kLeft - 8, top + row * s + 20, absl::StrCat("stage ", s), Anchor::kEnd);
    svg.Rectangle(kLeft, top + row * s + 2, kWidth - kLeft - kRight, row - 6, kBubble);
  }
  for (const reorder::PipelineOp& op : timeline.ops) {
    const double x = kLeft + op.start * scale, wide = (op.end - op.start) * scale;
    const double y = top + row * op.stage + 2;
    svg.Rectangle(
        x, y, std::max(0.0, wide - 0.6), row - 6, op.backward ? kBackward : kForward,
        absl::StrFormat("%s of microbatch %d, chunk %d: %.4g to %.4g s", op.backward ? "backward" : "forward",
                        op.microbatch, op.chunk, op.start, op.end));
    if (wide > 18) {
      svg.Label(x + wide / 2, y + 18, absl::StrCat(op.microbatch), Anchor::kMiddle, 11,
                op.backward ? "#ffffff" : "#222222");
    }
  }
  const double axis = top + row * stages + 16;
  svg.Label(kLeft, axis, "0 s", Anchor::kStart, 11);
  svg.Label(kWidth - kRight, axis, absl::StrFormat("%.4g s", timeline.iteration_time), Anchor::kEnd, 11);
  double x = kLeft;
  for (const auto& [colour, name] :
       {std::pair(kForward, "forward"), std::pair(kBackward, "backward"), std::pair(kBubble, "bubble")}) {
    svg.Rectangle(x, axis + 14, 14, 14, colour);
    svg.Label(x + 20, axis + 26, name);
    x += 110;
  }
  return svg.Write(path);
}

// Ranks from top to bottom, time from left to right; a rectangle is a group of ranks at work.
absl::Status DrawDegrees(const PolicyFigures& figures, const std::string& path) {
  const advise::StepFigures& step = figures.first;
  const size_t ranks =
      std::max_element(step.phases.begin(), step.phases.end(), [](const auto& a, const auto& b) {
        return a.seconds.size() < b.seconds.size();
      })->seconds.size();
  const double top = 64, row = std::clamp(640.0 / static_cast<double>(ranks), 1.0, 20.0);
  const double tall = row * static_cast<double>(ranks), wide = kWidth - kLeft - kRight;
  const double scale = step.iteration_seconds > 0 ? wide / step.iteration_seconds : 0;
  Svg svg(kWidth, top + tall + 60,
          absl::StrCat("Degrees of context parallelism: ", std::string(figures.name), ", waiting ",
                       Percent(step.bubble_share)));
  svg.Label(kLeft, 48, absl::StrCat("first microbatch: ", DegreesOf(step)));
  svg.Rectangle(kLeft, top, wide, tall, kBubble);
  double encoders = 0;
  for (const advise::PhaseFigures& phase : step.phases) {
    if (phase.phase == Phase::kLlm) continue;
    encoders += phase.seconds.empty() ? 0 : *std::max_element(phase.seconds.begin(), phase.seconds.end());
  }
  svg.Rectangle(kLeft, top, encoders * scale, tall, kEncoders, "encoders, evenly over all ranks");
  if (encoders * scale > 60) {
    svg.Label(kLeft + encoders * scale / 2, top + tall / 2, "encoders", Anchor::kMiddle, 11);
  }
  for (const advise::GroupFigures& group : step.groups) {
    // Consecutive ranks are drawn as one rectangle.
    for (size_t first = 0, next = 1; first < group.ranks.size(); first = next, next = first + 1) {
      while (next < group.ranks.size() && group.ranks[next] == group.ranks[next - 1] + 1) ++next;
      const double x = kLeft + group.start * scale, length = (group.end - group.start) * scale;
      const double y = top + row * group.ranks[first], height = row * static_cast<double>(next - first);
      svg.Rectangle(x, y, std::max(0.0, length - 0.6), height - std::min(0.8, row / 4),
                    Colour(group.ranks.size() - 1),
                    absl::StrFormat("degree %d, microbatch %d: %d tokens, %.4g s", group.ranks.size(),
                                    group.microbatch, group.tokens, group.end - group.start));
      if (length > 18 && height > 12) {
        svg.Label(x + length / 2, y + height / 2 + 4, absl::StrCat(group.ranks.size()), Anchor::kMiddle, 11,
                  "#ffffff");
      }
    }
  }
  svg.Label(kLeft - 8, top + 10, "rank 0", Anchor::kEnd, 11);
  svg.Label(kLeft - 8, top + tall, absl::StrCat(ranks - 1), Anchor::kEnd, 11);
  svg.Label(kLeft, top + tall + 18, "0 s", Anchor::kStart, 11);
  svg.Label(kWidth - kRight, top + tall + 18, absl::StrFormat("%.4g s", step.iteration_seconds), Anchor::kEnd,
            11);
  svg.Label(kWidth / 2, top + tall + 40,
            "colour and number: the degree; grey: encoders, which come first; pale red: waiting",
            Anchor::kMiddle, 11);
  return svg.Write(path);
}

// The unit of lengths in each phase.
std::string_view UnitOf(const Phase& phase) {
  if (phase == Phase::kLlm) return "tokens";
  return phase.encodes(Medium::kAudio) ? "frames" : "patches";
}

// The distribution of one phase's lengths over the samples that have any, in bins of powers of two.
struct Lengths {
  static constexpr size_t kBins = 20;
  std::array<uint64_t, kBins> bins = {};
  uint64_t samples = 0;
  double sum = 0, squares = 0;

  void Add(uint64_t length) {
    if (length == 0) return;
    size_t bin = 0;
    while (bin + 1 < kBins && (uint64_t{2} << bin) <= length) ++bin;
    ++bins[bin];
    ++samples;
    sum += static_cast<double>(length);
    squares += static_cast<double>(length) * static_cast<double>(length);
  }
};

absl::Status DrawLengths(const std::vector<Phase>& phases, const std::vector<SampleLengths>& samples,
                         const std::string& path) {
  const reorder::ItemPhases table(phases);
  std::vector<Lengths> lengths(phases.size());
  for (const SampleLengths& sample : samples) {
    std::vector<uint64_t> of_sample(phases.size(), 0);
    for (const SampleItem& item : sample.items) of_sample[*table.Find(item)] += item.lengths.cost_length;
    for (size_t p = 0; p < phases.size(); ++p) {
      lengths[p].Add(phases[p] == Phase::kLlm ? sample.llm_length : of_sample[p]);
    }
  }
  Svg svg(kWidth, 60 + 190.0 * phases.size(),
          "Length of a sample in each phase (modality composition incoherence)");
  const double step = (kWidth - kLeft - kRight) / Lengths::kBins;
  for (size_t p = 0; p < phases.size(); ++p) {
    const Lengths& phase = lengths[p];
    const double top = 74 + 190.0 * p, height = 116;
    const double mean = phase.samples == 0 ? 0 : phase.sum / phase.samples;
    const double variance = phase.samples == 0 ? 0 : phase.squares / phase.samples - mean * mean;
    svg.Label(
        kLeft, top - 10,
        absl::StrFormat("%s: %s of %d samples, mean %.0f, standard deviation %.0f",
                        std::string(PhaseName(phases[p])),
                        Percent(samples.empty() ? 0 : static_cast<double>(phase.samples) / samples.size()),
                        samples.size(), mean, std::sqrt(std::max(0.0, variance))));
    const uint64_t most = *std::max_element(phase.bins.begin(), phase.bins.end());
    svg.Line(kLeft, top + height, kWidth - kRight, top + height, "#999999");
    svg.Label(kLeft - 6, top + 10, absl::StrCat(most), Anchor::kEnd, 11);
    svg.Label(kLeft - 6, top + 22, "samples", Anchor::kEnd, 10);
    svg.Label(kWidth - kRight, top + height + 14, UnitOf(phases[p]), Anchor::kEnd, 10);
    for (size_t b = 0; b < Lengths::kBins; ++b) {
      const double tall = most == 0 ? 0 : height * phase.bins[b] / most;
      svg.Rectangle(kLeft + b * step, top + height - tall, step * 0.9, tall, Colour(p),
                    absl::StrFormat("from %d: %d samples", b == 0 ? 1 : 1 << b, phase.bins[b]));
      if (b % 2 == 0)
        svg.Label(kLeft + b * step, top + height + 14, absl::StrCat(1 << b), Anchor::kStart, 10);
    }
  }
  return svg.Write(path);
}

}  // namespace

absl::Status DrawSimulation(const Simulation& simulation, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  for (const PolicyFigures& figures : simulation.policies) {
    const std::string name = absl::StrCat(std::string(figures.name), ".svg");
    EVENKEEL_RETURN_IF_ERROR(DrawLoads(figures, absl::StrCat(folder, "/loads-", name)));
    if (!figures.first.slowest.ops.empty()) {
      EVENKEEL_RETURN_IF_ERROR(DrawPipeline(figures, absl::StrCat(folder, "/pipeline-", name)));
    }
    if (!figures.first.groups.empty()) {
      EVENKEEL_RETURN_IF_ERROR(DrawDegrees(figures, absl::StrCat(folder, "/degrees-", name)));
    }
  }
  return DrawLengths(simulation.phases, simulation.samples, absl::StrCat(folder, "/lengths.svg"));
}

}  // namespace evenkeel::cli
