// A shuffle that is a function of its key: the same order on every machine and build.
// Example:
//     KeyedNumbers numbers(seed);
//     std::vector<uint32_t> order = ShuffledOrder(bins, numbers);
//
// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) and the shuffle
// of Fisher and Yates. Not cryptographic, and not the sampler's permutation, which is never materialised.
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace evenkeel::reorder {

class KeyedNumbers {
 public:
  explicit KeyedNumbers(uint64_t key) : state_(key) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // In [0, bound); bound below 2^32. The bias is below bound / 2^32.
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(((Next() >> 32) * bound) >> 32); }

 private:
  uint64_t state_;
};

inline void Shuffle(std::vector<uint32_t>& values, KeyedNumbers& numbers) {
  for (uint32_t left = static_cast<uint32_t>(values.size()); left > 1; --left) {
    std::swap(values[left - 1], values[numbers.Below(left)]);
  }
}

// 0 to count-1; and in any order.
inline std::vector<uint32_t> InOrder(size_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}
inline std::vector<uint32_t> ShuffledOrder(uint32_t count, KeyedNumbers& numbers) {
  std::vector<uint32_t> order = InOrder(count);
  Shuffle(order, numbers);
  return order;
}

}  // namespace evenkeel::reorder
