// Sorts bins by their share of all phases, and deals them index by index.
#include "reorder/microbatch/bins.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "reorder/keyed_shuffle.h"

namespace evenkeel::reorder {
namespace {

// [bins] Of every bin its loads, each over the mean of its phase, added.
std::vector<double> Shares(const std::vector<std::vector<Load>>& loads) {
  std::vector<double> share(loads.front().size(), 0);
  for (const std::vector<Load>& of_phase : loads) {
    double total = 0;
    for (Load load : of_phase) total += static_cast<double>(load);
    if (total == 0) continue;
    for (size_t b = 0; b < share.size(); ++b) share[b] += static_cast<double>(of_phase[b]) / total;
  }
  return share;
}

}  // namespace

DealtBins DealBins(const std::vector<std::vector<Load>>& loads, uint32_t ranks) {
  const std::vector<double> share = Shares(loads);
  std::vector<uint32_t> order = InOrder(share.size());
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return share[a] > share[b]; });
  DealtBins dealt{.num_microbatches = static_cast<uint32_t>(share.size() / ranks),
                  .rank = std::vector<uint32_t>(share.size()),
                  .microbatch = std::vector<uint32_t>(share.size())};
  std::vector<std::pair<double, uint32_t>> had;  // (share, rank), the least first
  for (uint32_t r = 0; r < ranks; ++r) had.emplace_back(0, r);
  for (uint32_t m = 0; m < dealt.num_microbatches; ++m) {
    std::sort(had.begin(), had.end());
    for (uint32_t i = 0; i < ranks; ++i) {
      const uint32_t bin = order[m * ranks + i];
      dealt.rank[bin] = had[i].second;
      dealt.microbatch[bin] = m;
      had[i].first += share[bin];
    }
  }
  return dealt;
}

DealtBins DealBinsInOrder(uint32_t bins, uint32_t ranks) {
  DealtBins dealt{.num_microbatches = bins / ranks};
  for (uint32_t b = 0; b < bins; ++b) {
    dealt.rank.push_back(b % ranks);
    dealt.microbatch.push_back(b / ranks);
  }
  return dealt;
}

}  // namespace evenkeel::reorder
