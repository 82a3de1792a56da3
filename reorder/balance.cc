#include "reorder/balance.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace evenkeel::reorder {
namespace {

std::span<const Balancer* const> Balancers() {
  static const Balancer* const kBalancers[] = {&BalanceWithoutMoving(), &GreedyPacked(), &GreedyPadded(),
                                               &None()};
  return kBalancers;
}

// One pass of a radix sort by 11 bits, most significant bit inverted away by the caller.
void RadixPass(std::vector<std::pair<uint64_t, uint32_t>>& from,
               std::vector<std::pair<uint64_t, uint32_t>>& to, int shift) {
  uint32_t begin[2049] = {};
  for (const auto& entry : from) ++begin[((entry.first >> shift) & 2047) + 1];
  for (int b = 0; b < 2048; ++b) begin[b + 1] += begin[b];
  for (const auto& entry : from) to[begin[(entry.first >> shift) & 2047]++] = entry;
  from.swap(to);
}

}  // namespace

Scale::Scale(double total) {
  if (!(total > 0)) return;
  int exponent = 0;
  std::frexp(total, &exponent);  // total < 2^exponent
  factor_ = std::ldexp(1.0, 51 - exponent);
}

Load Scale::operator()(double cost) const { return static_cast<Load>(cost * factor_ + 0.5); }

double CleanCost(const Cost& cost, uint32_t length) {
  const double value = cost(static_cast<double>(length));
  if (!(value > 0)) return 0;
  return value < 1e200 ? value : 1e200;
}

const Balancer* FindBalancer(std::string_view name) {
  for (const Balancer* balancer : Balancers()) {
    if (balancer->name() == name) return balancer;
  }
  return nullptr;
}

std::string BalancerNames() {
  std::string names;
  for (const Balancer* balancer : Balancers()) {
    if (!names.empty()) names += ", ";
    names += balancer->name();
  }
  return names;
}

std::vector<uint32_t> DearestFirst(std::span<const Load> key) {
  Load largest = 0;
  for (Load value : key) largest = std::max(largest, value);
  std::vector<std::pair<uint64_t, uint32_t>> entries(key.size()), spare(key.size());
  for (uint32_t i = 0; i < key.size(); ++i) entries[i] = {static_cast<uint64_t>(largest - key[i]), i};
  if (entries.size() < 512) {
    std::sort(entries.begin(), entries.end());
  } else {
    for (int shift = 0; shift < 64 && (static_cast<uint64_t>(largest) >> shift) != 0; shift += 11) {
      RadixPass(entries, spare, shift);
    }
  }
  std::vector<uint32_t> order(key.size());
  for (uint32_t i = 0; i < key.size(); ++i) order[i] = entries[i].second;
  return order;
}

}  // namespace evenkeel::reorder
