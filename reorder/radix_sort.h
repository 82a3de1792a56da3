// Sorting of 64-bit entries by some of their bits, in time linear in the entries: keys above, numbers below.
//
//   std::vector<uint64_t> entries, spare;
//   for (uint32_t b = 0; b < loads.size(); ++b) entries.push_back(Keyed(OrderedBits(loads[b]), b));
//   RadixSort(entries, spare, 32, 64);
//
// Stable: entries that agree in these bits stay in their order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace evenkeel::reorder {

// `spare` has the size of `entries`; what is sorted may change places with it.
inline void RadixSort(std::span<uint64_t>& entries, std::span<uint64_t>& spare, int first_bit, int end_bit) {
  constexpr int kDigit = 11;
  constexpr size_t kDigits = size_t{1} << kDigit;
  for (int shift = first_bit; shift < end_bit; shift += kDigit) {
    const uint64_t mask = (uint64_t{1} << (end_bit - shift < kDigit ? end_bit - shift : kDigit)) - 1;
    size_t begin[kDigits + 1] = {};
    for (uint64_t entry : entries) ++begin[(entry >> shift & mask) + 1];
    for (size_t d = 0; d < kDigits; ++d) begin[d + 1] += begin[d];
    for (uint64_t entry : entries) spare[begin[entry >> shift & mask]++] = entry;
    std::swap(entries, spare);
  }
}

inline void RadixSort(std::vector<uint64_t>& entries, std::vector<uint64_t>& spare, int first_bit,
                      int end_bit) {
  spare.resize(entries.size());
  std::span<uint64_t> sorted(entries), other(spare);
  RadixSort(sorted, other, first_bit, end_bit);
  if (sorted.data() == spare.data()) entries.swap(spare);
}

// By the bits from `first_bit` up. Few entries are not worth a table of digits: those are sorted by all bits.
inline void SortKeyed(std::vector<uint64_t>& entries, std::vector<uint64_t>& spare, int first_bit) {
  constexpr size_t kFew = 512;
  if (entries.size() < kFew) {
    std::sort(entries.begin(), entries.end());
  } else {
    RadixSort(entries, spare, first_bit, 64);
  }
}

// Smaller values have smaller bits, negative ones included. Not for NaN.
inline uint32_t OrderedBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 as 0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

inline uint64_t Keyed(uint32_t key, uint32_t number) { return uint64_t{key} << 32 | number; }
inline uint32_t KeyOf(uint64_t keyed) { return static_cast<uint32_t>(keyed >> 32); }
inline uint32_t NumberOf(uint64_t keyed) { return static_cast<uint32_t>(keyed); }

}  // namespace evenkeel::reorder
