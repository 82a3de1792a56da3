#include "reorder/balance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace evenkeel::reorder {
namespace {

// One pass of a radix sort, by 11 bits.
void RadixPass(std::vector<uint64_t>& from, std::vector<uint64_t>& to, int shift) {
  uint32_t begin[2049] = {};
  for (uint64_t entry : from) ++begin[((entry >> shift) & 2047) + 1];
  for (int b = 0; b < 2048; ++b) begin[b + 1] += begin[b];
  for (uint64_t entry : from) to[begin[(entry >> shift) & 2047]++] = entry;
  from.swap(to);
}

}  // namespace

std::span<const Balancer* const> Balancers() {
  static const Balancer* const kBalancers[] = {&BalanceWithoutMoving(),
                                               &GreedyPacked(),
                                               &GreedyPadded(),
                                               &GreedyQuadratic(),
                                               &GreedyPaddedAttention(),
                                               &IntraMicrobatch(),
                                               &KarmarkarKarp(),
                                               &NodeWise(),
                                               &None()};
  return kBalancers;
}

Scale::Scale(double total) {
  if (!(total > 0)) return;
  int exponent = 0;
  std::frexp(total, &exponent);  // total < 2^exponent
  factor_ = std::ldexp(1.0, 51 - exponent);
}

const Balancer* FindBalancer(std::string_view name) {
  if (name == "binary_search_padded") return &GreedyPadded();  // another name of the same
  for (const Balancer* balancer : Balancers()) {
    if (balancer->name() == name) return balancer;
  }
  return nullptr;
}

Load DearestRank(const BalanceProblem& problem, std::span<const uint32_t> rank) {
  std::vector<Load> load(problem.ranks->size(), 0);
  for (size_t i = 0; i < rank.size(); ++i) load[rank[i]] += problem.cost[i];
  return *std::max_element(load.begin(), load.end());
}

std::vector<uint32_t> DearestFirst(std::span<const Load> key) {
  Load largest = 0;
  for (Load value : key) largest = std::max(largest, value);
  std::vector<uint32_t> order(key.size());
  const int index_bits = std::bit_width(key.size());
  const int key_bits = std::bit_width(static_cast<uint64_t>(largest));
  if (index_bits + key_bits > 64) {
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(key[b], a) < std::pair(key[a], b); });
    return order;
  }
  // What is missing to the largest, then the index, in one word.
  std::vector<uint64_t> entries(key.size()), spare;
  for (uint32_t i = 0; i < key.size(); ++i)
    entries[i] = static_cast<uint64_t>(largest - key[i]) << index_bits | i;
  if (entries.size() < 512) {
    std::sort(entries.begin(), entries.end());
  } else {
    spare.resize(key.size());
    for (int shift = index_bits; shift < index_bits + key_bits; shift += 11) RadixPass(entries, spare, shift);
  }
  const uint64_t mask = (uint64_t{1} << index_bits) - 1;
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(entries[i] & mask);
  return order;
}

}  // namespace evenkeel::reorder
