// Computes the draws of one period from the weights, and sorts them into slots.
#include "dataset/order/mixture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace evenkeel::dataset {
namespace {

// Draws of `period` if every share is a whole number (within the accuracy of doubles); otherwise empty.
std::vector<uint64_t> ExactCounts(const std::vector<double>& weights, double sum, uint64_t period) {
  std::vector<uint64_t> counts;
  for (double weight : weights) {
    double share = weight / sum * static_cast<double>(period);
    double whole = std::nearbyint(share);
    if (std::abs(share - whole) > 1e-9 * static_cast<double>(period) || (weight > 0 && whole < 1)) return {};
    counts.push_back(static_cast<uint64_t>(whole));
  }
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == period ? counts
                                                                              : std::vector<uint64_t>();
}

// Rounds down and gives the remaining draws to the largest remainders. Every positive weight gets at least
// one draw.
std::vector<uint64_t> NearestCounts(const std::vector<double>& weights, double sum) {
  std::vector<uint64_t> counts;
  std::vector<size_t> by_remainder(weights.size());
  std::vector<double> remainders;
  for (double weight : weights) {
    double share = weight / sum * static_cast<double>(kMaxPeriod);
    uint64_t whole = std::max<uint64_t>(static_cast<uint64_t>(std::floor(share)), weight > 0 ? 1 : 0);
    counts.push_back(whole);
    remainders.push_back(share - static_cast<double>(whole));
  }
  std::iota(by_remainder.begin(), by_remainder.end(), size_t{0});
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  for (size_t i = 0; total < kMaxPeriod; i = (i + 1) % by_remainder.size()) {
    if (weights[by_remainder[i]] <= 0) continue;
    ++counts[by_remainder[i]];
    ++total;
  }
  while (total > kMaxPeriod) {  // many tiny weights were raised to one draw
    --*std::max_element(counts.begin(), counts.end());
    --total;
  }
  return counts;
}

std::vector<uint64_t> Counts(const std::vector<double>& weights) {
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (uint64_t period = 1; period <= kMaxPeriod; ++period) {
    std::vector<uint64_t> counts = ExactCounts(weights, sum, period);
    if (!counts.empty()) return counts;
  }
  return NearestCounts(weights, sum);
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) : counts_(Counts(weights)) {
  struct Ideal {
    uint64_t twice;  // (2k + 1); the draw's place is this over 2q
    uint32_t dataset;
  };
  std::vector<Ideal> draws;
  for (uint32_t d = 0; d < counts_.size(); ++d) {
    for (uint64_t k = 0; k < counts_[d]; ++k) draws.push_back({2 * k + 1, d});
  }
  std::sort(draws.begin(), draws.end(), [&](const Ideal& a, const Ideal& b) {
    uint64_t left = a.twice * counts_[b.dataset], right = b.twice * counts_[a.dataset];
    return left != right ? left < right : a.dataset < b.dataset;
  });
  std::vector<uint32_t> seen(counts_.size());
  for (const Ideal& draw : draws) slots_.push_back({draw.dataset, seen[draw.dataset]++});
}

Mixture::Draw Mixture::At(uint64_t position) const {
  const Slot& slot = slots_[position % slots_.size()];
  return {slot.dataset, position / slots_.size() * counts_[slot.dataset] + slot.before};
}

uint64_t Mixture::CountBefore(uint32_t dataset, uint64_t position) const {
  const auto end = slots_.begin() + static_cast<ptrdiff_t>(position % slots_.size());
  const auto rest =
      std::count_if(slots_.begin(), end, [&](const Slot& slot) { return slot.dataset == dataset; });
  return position / slots_.size() * counts_[dataset] + static_cast<uint64_t>(rest);
}

uint64_t Mixture::FirstAfter(const std::vector<uint64_t>& counts) const {
  uint64_t first = kNever;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const uint64_t before = counts[slot.dataset] - 1, of_period = counts_[slot.dataset];
    if (counts[slot.dataset] == kNever || before % of_period != slot.before) continue;
    const uint64_t periods = before / of_period;
    if (periods < kNever / kMaxPeriod) first = std::min(first, periods * slots_.size() + i + 1);
  }
  return first;
}

}  // namespace evenkeel::dataset
