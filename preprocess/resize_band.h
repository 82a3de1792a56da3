// What the vector paths of the resizer share in the horizontal filter of a band of rows. No vectors here: the
// callers' own instructions apply where it is inlined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "preprocess/resize.h"

namespace evenkeel {

inline constexpr uint32_t kStepPixels = 4;  // brought into a vector's order at once
inline constexpr uint32_t kStepBytes = 3 * kStepPixels;
inline constexpr size_t kStepRead = 16;  // bytes that a step reads of each row

// The RGB rows of a band. Where there are fewer, the last one stands for those that are missing.
struct BandRows {
  BandRows(const uint8_t* rgb, size_t stride, uint32_t rows, uint32_t width) : bytes(size_t{3} * width) {
    for (uint32_t r = 0; r < kBandRows; ++r) row[r] = rgb + stride * std::min(r, rows - 1);
  }
  const uint8_t* row[kBandRows];
  size_t bytes;  // of a row
};

// The last pixels of a band's rows from byte `at`, in memory of which a whole step can be read.
struct BandTail {
  BandTail(const BandRows& band, size_t at) {
    for (uint32_t r = 0; r < kBandRows; ++r) {
      std::memcpy(bytes[r], band.row[r] + at, std::min<size_t>(kStepBytes, band.bytes - at));
      row[r] = bytes[r];
    }
  }
  BandTail(const BandTail&) = delete;
  BandTail& operator=(const BandTail&) = delete;
  uint8_t bytes[kBandRows][kStepRead] = {};
  const uint8_t* row[kBandRows];
};

// The groups of a band's pixels that the outputs to come need: [begin, end), kValues of T each.
template <typename T, size_t kValues>
struct GroupWindow {
  T* values = nullptr;
  uint32_t capacity = 0;  // groups
  uint32_t begin = 0;
  uint32_t end = 0;

  const T* at(uint32_t group) const { return values + kValues * (group - begin); }
  // Where the next group goes.
  T* next() { return values + kValues * (end - begin); }
  // Makes room until `needed`, where there is none, by dropping the groups before `first`.
  void MakeRoom(uint32_t first, uint32_t needed) {
    if (needed - begin <= capacity) return;
    const uint32_t kept_from = std::min(first, end);
    std::memmove(values, at(kept_from), (end - kept_from) * kValues * sizeof(T));
    begin = kept_from;
  }
};

}  // namespace evenkeel
