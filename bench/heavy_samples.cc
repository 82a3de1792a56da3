// What putting heavy samples together (`order.level`, and `order.heavy` with packed bins) brings, and what it does to
// neighbouring steps. Prints two tables.
//
//     cmake --preset release -DEVENKEEL_BENCH=ON && ninja -C build/release bench_heavy_samples
//     build/release/bench/bench_heavy_samples
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "dataset/order/draw_order.h"
#include "stream/bin_packer.h"
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

// Chats of some hundred tokens, and documents of up to a whole bin, about one in twenty.
std::vector<SampleLengths> DrawTexts(uint64_t seed, size_t samples) {
  reorder::Random random(seed);
  std::vector<SampleLengths> out(samples);
  for (SampleLengths& lengths : out) {
    const bool is_document = random.Length(0, 1, 1, 16) > 4;
    lengths.llm_length = is_document ? random.Length(8, 0.6, 1000, 8192) : random.Length(5.5, 0.8, 20, 2000);
  }
  return out;
}

// Steps of packed bins: attention, the square of each sample's length, is what bins of alike lengths differ in.
void PrintBins() {
  constexpr size_t kWindow = 65536, kWindows = 4;
  std::printf(
      "\n| bins a step | heavy | sum of step times (attention) over ideal | deviation of a step's attention "
      "| "
      "correlation of neighbouring steps |\n|---|---|---|---|---|\n");
  for (const uint32_t bins : {16u, 64u}) {
    for (const double heavy : {0.0, 2.0, 4.0, 8.0}) {
      Job job;
      job.phases.push_back({.phase = Phase::kLlm, .ranks = {0}});
      job.batch.pack = {.bins = bins, .capacities = {{"llm", 8192}}};
      job.order.heavy = heavy;
      const stream::BinPacker packer(job);
      std::vector<double> sums;
      double times = 0, ideal = 0;
      for (uint64_t window = 0; window < kWindows; ++window) {
        const std::vector<SampleLengths> lengths = DrawTexts(window + 1, kWindow);
        const auto packed = *packer.Pack(lengths, window);
        for (size_t begin = 0; begin < packed.size(); begin += bins) {
          double sum = 0, most = 0;
          for (size_t b = begin; b < begin + bins; ++b) {
            double attention = 0;
            for (uint32_t s : packed[b]) attention += std::pow(lengths[s].llm_length, 2);
            sum += attention;
            most = std::max(most, attention);
          }
          sums.push_back(sum);
          times += most;
          ideal += sum / bins;
        }
      }
      double mean = 0, variance = 0;
      for (double sum : sums) mean += sum / static_cast<double>(sums.size());
      for (double sum : sums)
        variance += (sum / mean - 1) * (sum / mean - 1) / static_cast<double>(sums.size());
      std::printf("| %u | %g | %.3f | %.3f | %.3f |\n", bins, heavy, times / ideal, std::sqrt(variance),
                  Correlation(sums));
    }
  }
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
  PrintBins();
}
