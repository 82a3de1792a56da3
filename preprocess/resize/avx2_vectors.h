// Helpers of the resizer's AVX2 files. Included only by them.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "preprocess/resize/axis_weights.h"

#define EVENKEEL_AVX2 __attribute__((target("avx2")))
#define EVENKEEL_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline
#define EVENKEEL_AVX2_INLINE_LAMBDA __attribute__((target("avx2"), always_inline))

namespace evenkeel::preprocess {

EVENKEEL_AVX2_INLINE __m128i Load128(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
EVENKEEL_AVX2_INLINE __m256i Load256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
EVENKEEL_AVX2_INLINE void Store256(void* to, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}
// 16 bytes in the lower half, 16 others in the upper half.
EVENKEEL_AVX2_INLINE __m256i LoadTwo128(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(Load128(low)), Load128(high), 1);
}

// sum += values * weights. The addition is inline assembly, because with the intrinsic GCC 12 copies the
// sums, or stores all products in memory first.
EVENKEEL_AVX2_INLINE void Accumulate(__m256i& sum, __m256i values, __m256i weights) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(_mm256_madd_epi16(values, weights)));
}

// How sums of an axis become bytes. Weights with Pillow's 22 fraction bits have two digits (kSplit).
template <bool kSplit>
struct Rounding {
  __m256i half;   // the initial value of sums, for rounding
  __m128i shift;  // after the first 16 bits, if a weight has two digits

  EVENKEEL_AVX2_INLINE explicit Rounding(const AxisWeights& axis)
      : half(_mm256_set1_epi32(axis.half)), shift(_mm_cvtsi32_si128(axis.shift - (kSplit ? 16 : 0))) {}

  // The results as words before clipping, from two vectors of sums and one with the sums of upper digits as
  // words.
  EVENKEEL_AVX2_INLINE __m256i Words(__m256i first, __m256i second, __m256i upper) const {
    if constexpr (!kSplit) {
      return _mm256_packs_epi32(_mm256_sra_epi32(first, shift), _mm256_sra_epi32(second, shift));
    }
    // The sum of upper digits begins at bit 16, so nothing below that bit carries into it.
    const __m256i high = _mm256_packs_epi32(_mm256_srai_epi32(first, 16), _mm256_srai_epi32(second, 16));
    return _mm256_sra_epi16(_mm256_add_epi16(high, upper), shift);
  }
};

}  // namespace evenkeel::preprocess
