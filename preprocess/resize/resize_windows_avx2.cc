// The horizontal filter of AVX2 for outputs with few inputs.
//
// Sixteen bytes of a row have the inputs of four or eight neighbouring outputs. One instruction places a pair
// of inputs of each output next to each other as words, the next one multiplies and adds them. Nothing is
// transposed beforehand, and outputs are made eight at a time, in the order in which they are stored.
#include "preprocess/resize/resize_windows_avx2.h"

#ifdef __x86_64__

#include "preprocess/resize/avx2_vectors.h"
#include "preprocess/resize/resize_band.h"

namespace evenkeel::preprocess {
namespace {

// The sums of eight outputs of one channel of a row, before rounding: one for each digit.
struct WindowSums {
  __m256i lower, upper;
};

// A block of eight outputs, with its order and weights in registers for all rows.
template <bool kSplit, uint32_t kPairs>
struct WindowBlock {
  __m256i order[kPairs], lower[kPairs], upper[kPairs] = {};

  EVENKEEL_AVX2_INLINE WindowBlock(const uint8_t* orders, const int32_t* digits) {
    for (uint32_t k = 0; k < kPairs; ++k, orders += 32, digits += 8) {
      order[k] = Load256(orders);
      if constexpr (kSplit) {
        upper[k] = Load256(digits);
        digits += 8;
      }
      lower[k] = Load256(digits);
    }
  }

  // `bytes`: both windows, one in each half.
  EVENKEEL_AVX2_INLINE WindowSums Sum(__m256i bytes, __m256i half) const {
    const __m256i first = _mm256_shuffle_epi8(bytes, order[0]);
    WindowSums sums{_mm256_add_epi32(half, _mm256_madd_epi16(first, lower[0])), {}};
    if constexpr (kSplit) sums.upper = _mm256_madd_epi16(first, upper[0]);
    for (uint32_t k = 1; k < kPairs; ++k) {
      const __m256i words = _mm256_shuffle_epi8(bytes, order[k]);
      Accumulate(sums.lower, words, lower[k]);
      if constexpr (kSplit) Accumulate(sums.upper, words, upper[k]);
    }
    return sums;
  }
};

// The results of two rows as words before clipping: four outputs of `one`, four of `other`, then the other
// four of each.
template <bool kSplit>
EVENKEEL_AVX2_INLINE __m256i WordsOf(const WindowSums& one, const WindowSums& other,
                                     const Rounding<kSplit>& rounding) {
  return rounding.Words(one.lower, other.lower, _mm256_packs_epi32(one.upper, other.upper));
}

// One block of all rows of a plane. Its lanes are stored at `out` + `to`.
template <bool kSplit, uint32_t kPairs, bool kOneWindow>
EVENKEEL_AVX2_INLINE void FilterBlock(const uint8_t* const* rows, const WindowWeights& windows,
                                      const WindowWeights::Block& at, const Rounding<kSplit>& rounding,
                                      uint32_t* const* out, size_t to) {
  const WindowBlock<kSplit, kPairs> block(&windows.order[at.order], &windows.digits[at.digits]);
  const size_t first = at.window[0], second = at.window[1];
  auto sums = [&](uint32_t r) EVENKEEL_AVX2_INLINE_LAMBDA {
    const __m256i bytes = kOneWindow ? _mm256_broadcastsi128_si256(Load128(rows[r] + first))
                                     : LoadTwo128(rows[r] + first, rows[r] + second);
    return block.Sum(bytes, rounding.half);
  };
  // From the bytes of four rows to the lanes of two: one row in the lower words, the next one in the upper
  // words.
  const __m256i first_two = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,  //
                                             0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
  const __m256i last_two = _mm256_or_si256(first_two, _mm256_set1_epi16(8));
  to += at.output;
  for (uint32_t r = 0; r < kBandRows; r += 4) {
    const __m256i upper = WordsOf(sums(r), sums(r + 1), rounding);
    const __m256i lower = WordsOf(sums(r + 2), sums(r + 3), rounding);
    const __m256i bytes = _mm256_packus_epi16(upper, lower);
    Store256(out[r / 2] + to, _mm256_shuffle_epi8(bytes, first_two));
    Store256(out[r / 2 + 1] + to, _mm256_shuffle_epi8(bytes, last_two));
  }
}

// The number of pairs is a template argument, so that the loop over them is unrolled and all weights stay in
// registers.
template <bool kSplit>
EVENKEEL_AVX2 void FilterPlane(const uint8_t* const* rows, const AxisWeights& axis, uint32_t* const* out,
                               size_t to) {
  const Rounding<kSplit> rounding(axis);
  for (const WindowWeights::Block& at : axis.windows.blocks) {
    const bool one = at.window[0] == at.window[1];
    switch (at.groups) {
      case 1:
        FilterBlock<kSplit, 1, false>(rows, axis.windows, at, rounding, out, to);
        break;
      case 2:
        one ? FilterBlock<kSplit, 2, true>(rows, axis.windows, at, rounding, out, to)
            : FilterBlock<kSplit, 2, false>(rows, axis.windows, at, rounding, out, to);
        break;
      case 3:
        one ? FilterBlock<kSplit, 3, true>(rows, axis.windows, at, rounding, out, to)
            : FilterBlock<kSplit, 3, false>(rows, axis.windows, at, rounding, out, to);
        break;
      case 4:
        FilterBlock<kSplit, 4, false>(rows, axis.windows, at, rounding, out, to);
        break;
      default:
        FilterBlock<kSplit, WindowWeights::kMaxGroups, false>(rows, axis.windows, at, rounding, out, to);
    }
  }
}

}  // namespace

void FilterWindows(const PixelBand& planes, const AxisWeights& axis, size_t plane, uint32_t* const* out) {
  const BandRows band(planes, axis.in);
  for (uint32_t c = 0; c < 3; ++c) {
    (axis.digits == 2 ? FilterPlane<true> : FilterPlane<false>)(band.plane[c], axis, out, plane * c);
  }
}

}  // namespace evenkeel::preprocess

#endif
