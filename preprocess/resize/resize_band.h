// The part of the horizontal filter that the vector paths share. It has no vector code itself: it is inlined
// and compiled with the caller's instructions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

inline constexpr uint32_t kStepPixels = 16;  // transposed at once
inline constexpr uint32_t kQuadPixels = 4;   // interleaved pixels in 16 bytes

// The rows of a band. If there are fewer than kBandRows, the last one is repeated. Interleaved rows use only
// the first plane.
struct BandRows {
  BandRows(const PixelBand& band, uint32_t width)
      : step(band.step),
        width(width),
        stride(static_cast<ptrdiff_t>(band.stride)),
        complete(band.rows == kBandRows) {
    for (uint32_t r = 0; r < kBandRows; ++r) {
      const size_t to = band.stride * std::min(r, band.rows - 1);
      for (uint32_t c = 0; c < 3; ++c) plane[c][r] = band.plane[c] + to;
    }
  }
  // Whether a step from pixel `x` reads only bytes of the rows: 16 bytes of each plane, or of each quad.
  bool has_step(uint32_t x) const {
    const uint32_t pixels_read = step == 1 ? kStepPixels : kStepPixels + 2;
    return x + pixels_read <= width;
  }

  const uint8_t* plane[3][kBandRows];
  uint32_t step;
  uint32_t width;
  ptrdiff_t stride;  // distance of a plane's rows, if complete
  bool complete;     // no row is missing
};

// Hardware follows fewer streams than there are rows, so bytes are prefetched kAhead before their use.
template <bool kPlanes, size_t kAhead>
inline void PrefetchStep(const BandRows& band, uint32_t x) {
  constexpr size_t kStepBytes = kPlanes ? kStepPixels : 3 * kStepPixels;
  const size_t at = (kPlanes ? 1 : 3) * size_t{x};
  if (at % 64 >= kStepBytes) return;
  for (int c = 0; c < (kPlanes ? 3 : 1); ++c) {
    for (const uint8_t* row : band.plane[c]) __builtin_prefetch(row + at + kAhead);
  }
}

// A copy of the last pixels of a band's rows from pixel `x`, with enough memory for reading a whole step.
class BandTail {
 public:
  BandTail(const BandRows& band, uint32_t x)
      : rows_({{bytes_[0][0], bytes_[1][0], bytes_[2][0]}, sizeof(bytes_[0][0]), kBandRows, band.step},
              band.width - x) {
    const size_t count = std::min(kStepPixels, band.width - x) * band.step;
    for (uint32_t c = 0; c < (band.step == 1 ? 3u : 1u); ++c) {
      for (uint32_t r = 0; r < kBandRows; ++r) {
        std::memcpy(bytes_[c][r], band.plane[c][r] + size_t{band.step} * x, count);
      }
    }
  }
  BandTail(const BandTail&) = delete;
  BandTail& operator=(const BandTail&) = delete;

  const BandRows& rows() const { return rows_; }

 private:
  uint8_t bytes_[3][kBandRows][64] = {};
  const BandRows rows_;
};

// A window over the groups of a band's pixels that the next outputs need: [begin, end), kValues of T each.
template <typename T, size_t kValues>
struct GroupWindow {
  T* values = nullptr;
  uint32_t capacity = 0;  // groups
  uint32_t begin = 0;
  uint32_t end = 0;

  const T* at(uint32_t group) const { return values + kValues * (group - begin); }
  // The memory of the next group.
  T* next() { return values + kValues * (end - begin); }
  // Makes room until `needed` by dropping the groups before `first`, unless there is room.
  void MakeRoom(uint32_t first, uint32_t needed) {
    if (needed - begin <= capacity) return;
    const uint32_t kept_from = std::min(first, end);
    std::memmove(values, at(kept_from), (end - kept_from) * kValues * sizeof(T));
    begin = kept_from;
  }
};

}  // namespace evenkeel::preprocess
