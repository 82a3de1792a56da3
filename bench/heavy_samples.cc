// What putting heavy samples together (`order.level`) brings, and what it does to neighbouring steps. Prints a table.
//
//     cmake --preset release -DEVENKEEL_BENCH=ON && ninja -C build/release bench_heavy_samples
//     build/release/bench/bench_heavy_samples
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "dataset/order/draw_order.h"
#include "tests/reorder/omni_trace.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

constexpr uint32_t kRanks = 128;
constexpr uint32_t kSteps = 512;
constexpr size_t kKinds = 2;  // the llm, vision

// [samples, kinds]
std::vector<float> DrawLengths(uint64_t seed, size_t samples) {
  std::vector<float> out;
  reorder::Random random(seed);
  for (size_t i = 0; i < samples; ++i) {
    const SampleLengths lengths = reorder::DrawOmniSample(random);
    float vision = 0;
    for (const SampleItem& item : lengths.items) {
      if (item.medium != Medium::kAudio) vision += static_cast<float>(item.lengths.cost_length);
    }
    out.push_back(static_cast<float>(lengths.llm_length));
    out.push_back(vision);
  }
  return out;
}

void Normalize(std::vector<float>& share) {
  for (size_t k = 0; k < kKinds; ++k) {
    double sum = 0;
    for (size_t i = k; i < share.size(); i += kKinds) sum += static_cast<double>(share[i]);
    const auto factor = static_cast<float>(static_cast<double>(share.size() / kKinds) / sum);
    for (size_t i = k; i < share.size(); i += kKinds) share[i] *= factor;
  }
}

double Correlation(const std::vector<double>& values) {
  double mean = 0, variance = 0, product = 0;
  for (double v : values) mean += v / static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    variance += (values[i] - mean) * (values[i] - mean);
    if (i > 0) product += (values[i] - mean) * (values[i - 1] - mean);
  }
  return product / variance;
}

struct Row {
  double over_ideal = 0;   // sum over steps of the heaviest rank at best, over that of the mean rank
  double deviation = 0;    // of a step's sum, over its mean
  double correlation = 0;  // of neighbouring steps' sums
  double with_heavy = 0;   // share of the steps with a sample above a rank's share
};

Row Measure(const std::vector<float>& share, size_t kind, uint32_t samples) {
  std::vector<double> sums;
  double times = 0, ideal = 0, with_heavy = 0;
  for (size_t begin = 0; begin < share.size(); begin += samples * kKinds) {
    double sum = 0, most = 0;
    for (size_t i = begin + kind; i < begin + samples * kKinds; i += kKinds) {
      sum += static_cast<double>(share[i]);
      most = std::max(most, static_cast<double>(share[i]));
    }
    sums.push_back(sum);
    times += std::max(most, sum / kRanks);
    ideal += sum / kRanks;
    with_heavy += most > sum / kRanks;
  }
  double variance = 0;
  for (double sum : sums)
    variance += (sum / samples - 1) * (sum / samples - 1) / static_cast<double>(sums.size());
  return {times / ideal, std::sqrt(variance), Correlation(sums),
          with_heavy / static_cast<double>(sums.size())};
}

std::vector<float> InOrder(const std::vector<float>& share, uint32_t samples, uint32_t level, double heavy) {
  if (level == 0) return share;
  std::vector<float> out;
  const size_t window = size_t{samples} * level * kKinds;
  for (size_t begin = 0; begin < share.size(); begin += window) {
    const std::vector<float> lengths(share.begin() + static_cast<ptrdiff_t>(begin),
                                     share.begin() + static_cast<ptrdiff_t>(begin + window));
    for (uint32_t draw : dataset::LevelWindow(lengths, kKinds, {samples, heavy, begin})) {
      for (size_t k = 0; k < kKinds; ++k) out.push_back(lengths[draw * kKinds + k]);
    }
  }
  return out;
}

}  // namespace

int main() {
  std::printf(
      "| samples a rank | level | phase | sum of step times over ideal | steps with a heavy sample | "
      "deviation of a "
      "step's sum | correlation of neighbouring steps |\n|---|---|---|---|---|---|---|\n");
  for (const uint32_t per_rank : {8u, 16u, 60u}) {
    const uint32_t samples = kRanks * per_rank;
    std::vector<float> share = DrawLengths(per_rank, size_t{samples} * kSteps);
    Normalize(share);
    for (const uint32_t level : {0u, 4u, 16u, 64u}) {
      const std::vector<float> ordered = InOrder(share, samples, level, per_rank);
      for (size_t kind = 0; kind < kKinds; ++kind) {
        const Row row = Measure(ordered, kind, samples);
        std::printf("| %u | %u | %s | %.3f | %.0f %% | %.3f | %.3f |\n", per_rank, level,
                    kind == 0 ? "llm" : "vision", row.over_ideal, 100 * row.with_heavy, row.deviation,
                    row.correlation);
      }
    }
  }
}
