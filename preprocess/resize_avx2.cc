// Sixteen rows are filtered at once: a vector holds one channel of one pair of pixels in all rows, so that
// every lane of every multiplication is of use and a weight is loaded once for all rows. Rows are brought
// into that order in steps of four pixels; what the outputs to come still need of it slides to the front.
#include "preprocess/resize_avx2.h"

#ifdef __x86_64__
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "core/cpu.h"
#include "preprocess/resize.h"
#include "preprocess/resize_band.h"

#define EVENKEEL_AVX2 __attribute__((target("avx2")))
#define EVENKEEL_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline
#define EVENKEEL_AVX2_INLINE_LAMBDA __attribute__((target("avx2"), always_inline))

namespace evenkeel {
namespace {

constexpr size_t kPairValues =
    3 * 2 * kBandRows;                // 16-bit values of a pair of pixels in all rows and channels
constexpr uint32_t kSlackPairs = 64;  // how far ahead pairs are made
constexpr size_t kAhead = 512;        // bytes of a row

EVENKEEL_AVX2_INLINE __m128i Load128(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
EVENKEEL_AVX2_INLINE __m256i Load256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
EVENKEEL_AVX2_INLINE void Store256(void* to, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}

// Four pixels of 16 rows -> two pairs; rows in the order 0-3 8-11, 4-7 12-15. Reads 16 bytes of each row.
EVENKEEL_AVX2_INLINE void MakePairs(const uint8_t* const rows[kBandRows], size_t at, int16_t* out) {
  // r0 r1 g0 g1 b0 b1 r2 r3 g2 g3 b2 b3
  const __m256i order = _mm256_setr_epi8(0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, -1, -1, -1, -1,  //
                                         0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, -1, -1, -1, -1);
  __m256i a[8], b[8];
  for (int r = 0; r < 8; ++r) {
    const __m256i row =
        _mm256_inserti128_si256(_mm256_castsi128_si256(Load128(rows[r] + at)), Load128(rows[r + 8] + at), 1);
    a[r] = _mm256_shuffle_epi8(row, order);
  }
  for (int r = 0; r < 4; ++r) {
    b[2 * r] = _mm256_unpacklo_epi16(a[2 * r], a[2 * r + 1]);
    b[2 * r + 1] = _mm256_unpackhi_epi16(a[2 * r], a[2 * r + 1]);
  }
  for (int half = 0; half < 2; ++half) {  // elements 0 to 3, then 4 and 5
    const __m256i low01 = _mm256_unpacklo_epi32(b[half], b[half + 2]);
    const __m256i low23 = _mm256_unpacklo_epi32(b[half + 4], b[half + 6]);
    a[4 * half] = _mm256_unpacklo_epi64(low01, low23);
    a[4 * half + 1] = _mm256_unpackhi_epi64(low01, low23);
    if (half == 1) break;
    const __m256i high01 = _mm256_unpackhi_epi32(b[half], b[half + 2]);
    const __m256i high23 = _mm256_unpackhi_epi32(b[half + 4], b[half + 6]);
    a[2] = _mm256_unpacklo_epi64(high01, high23);
    a[3] = _mm256_unpackhi_epi64(high01, high23);
  }
  const __m256i zero = _mm256_setzero_si256();
  for (int i = 0; i < 6; ++i) {
    Store256(out + 32 * i, _mm256_unpacklo_epi8(a[i], zero));
    Store256(out + 32 * i + 16, _mm256_unpackhi_epi8(a[i], zero));
  }
}

// sum += values * weights. The sums of a loop fill the registers; without the barrier the compiler would
// compute all products first and keep them in memory.
EVENKEEL_AVX2_INLINE void Accumulate(__m256i& sum, __m256i values, __m256i weights) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(values, weights));
  asm("" : "+x"(sum));
}

// One output pixel of 16 rows, before clipping: of each channel rows 0-3 8-11, then 4-7 12-15.
template <bool kSplit>
EVENKEEL_AVX2_INLINE void SumBand(const int16_t* pairs, const AxisWeights& axis, uint32_t x,
                                  __m256i (&out)[6]) {
  const int32_t* weights = axis.packed_of(x);
  const __m256i half = _mm256_set1_epi32(axis.half);
  __m256i h0 = kSplit ? _mm256_setzero_si256() : half, h1 = h0, h2 = h0, h3 = h0, h4 = h0, h5 = h0;
  __m256i l0 = half, l1 = half, l2 = half, l3 = half, l4 = half, l5 = half;
  for (uint32_t k = axis.num_groups[x]; k > 0; --k, pairs += kPairValues) {
    const __m256i upper = _mm256_set1_epi32(*weights++);
    const __m256i lower = kSplit ? _mm256_set1_epi32(*weights++) : upper;
    auto both = [&](__m256i& h, __m256i& l, const int16_t* from) EVENKEEL_AVX2_INLINE_LAMBDA {
      const __m256i values = Load256(from);
      Accumulate(h, values, upper);
      if (kSplit) Accumulate(l, values, lower);
    };
    both(h0, l0, pairs), both(h1, l1, pairs + 16), both(h2, l2, pairs + 32);
    both(h3, l3, pairs + 48), both(h4, l4, pairs + 64), both(h5, l5, pairs + 80);
  }
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  auto whole = [&](__m256i h, __m256i l) EVENKEEL_AVX2_INLINE_LAMBDA {
    if (kSplit) h = _mm256_add_epi32(_mm256_slli_epi32(h, AxisWeights::kLowBits), l);
    return _mm256_sra_epi32(h, shift);
  };
  out[0] = whole(h0, l0), out[1] = whole(h1, l1), out[2] = whole(h2, l2);
  out[3] = whole(h3, l3), out[4] = whole(h4, l4), out[5] = whole(h5, l5);
}

using PairWindow = GroupWindow<int16_t, kPairValues>;

// Makes pairs until `needed` are there; those before `first` may go.
EVENKEEL_AVX2 void Extend(const BandRows& band, uint32_t first, uint32_t needed, PairWindow& window) {
  window.MakeRoom(first & ~1u, needed);  // an end is even: pairs come by two
  const auto total = static_cast<uint32_t>((band.bytes / 3 + kStepPixels - 1) / kStepPixels * 2);
  const uint32_t end = std::min(total, window.begin + window.capacity);
  for (; window.end < end; window.end += 2) {
    const size_t at = size_t{3} * 2 * window.end;
    int16_t* out = window.next();
    if (at % 64 < kStepBytes) {  // sixteen rows are more streams than a prefetcher follows
      for (const uint8_t* row : band.row) {
        _mm_prefetch(reinterpret_cast<const char*>(row + at + kAhead), _MM_HINT_T0);
      }
    }
    if (at + kStepRead <= band.bytes) {
      MakePairs(band.row, at, out);
      continue;
    }
    MakePairs(BandTail(band, at).row, 0, out);
  }
}

EVENKEEL_AVX2_INLINE void StoreLanes(__m256i lanes, uint32_t* low, uint32_t* high) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(lanes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(lanes, 1));
}

template <bool kSplit>
EVENKEEL_AVX2 void FilterBand(const uint8_t* rgb, size_t stride, uint32_t rows, const AxisWeights& axis,
                              BandScratch& scratch, size_t plane, uint32_t* const* out) {
  const BandRows band(rgb, stride, rows, axis.in);
  PairWindow window;
  window.capacity = (axis.groups_per_output + 3 + kSlackPairs) & ~1u;
  window.values = scratch.groups.Get<int16_t>(window.capacity * kPairValues);
  window.begin = window.end = axis.first_group[0] & ~1u;
  const __m256i most = _mm256_set1_epi16(255);
  const uint32_t outputs = axis.outputs();
  for (uint32_t x = 0; x < outputs; x += 4) {
    __m256i twos[2][6];  // of outputs, as bytes in 16 bits
    for (uint32_t two = 0; two < 2; ++two) {
      __m256i sums[2][6];
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t at = std::min(x + 2 * two + i, outputs - 1);
        const uint32_t first = axis.first_group[at], needed = first + axis.num_groups[at];
        if (needed > window.end) Extend(band, first, needed, window);
        SumBand<kSplit>(window.at(first), axis, at, sums[i]);
      }
      for (int v = 0; v < 6; ++v) {
        twos[two][v] = _mm256_min_epu16(_mm256_packus_epi32(sums[0][v], sums[1][v]), most);
      }
    }
    for (int v = 0; v < 6;
         ++v) {  // lanes of rows 0-1 2-3 | 8-9 10-11 of two outputs, or of those four further
      const __m256 a = _mm256_castsi256_ps(twos[0][v]), b = _mm256_castsi256_ps(twos[1][v]);
      const size_t to = plane * (v / 2) + x;
      uint32_t* const* group = out + v % 2 * 2;
      StoreLanes(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), group[0] + to, group[4] + to);
      StoreLanes(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)), group[1] + to, group[5] + to);
    }
  }
}

void FilterAnyBand(const uint8_t* rgb, size_t stride, uint32_t rows, const AxisWeights& axis,
                   BandScratch& scratch, size_t plane, uint32_t* const* out) {
  (axis.digits == 2 ? FilterBand<true> : FilterBand<false>)(rgb, stride, rows, axis, scratch, plane, out);
}

void GroupRows(const uint8_t* const* rows, size_t count, uint32_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = rows[0][i] | uint32_t{rows[1][i]} << 16;
}

void SplitGroup(const uint32_t* lanes, size_t count, uint8_t* const* rows) {
  for (size_t i = 0; i < count; ++i) {
    rows[0][i] = static_cast<uint8_t>(lanes[i]);
    rows[1][i] = static_cast<uint8_t>(lanes[i] >> 16);
  }
}

constexpr size_t kColumnStep = 32;
static_assert(kColumnBlock % kColumnStep == 0);

template <bool kSplit>
EVENKEEL_AVX2 void SumColumns(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y,
                              size_t count, uint8_t* out) {
  const uint32_t num_groups = axis.num_groups[y];
  const __m256i half = _mm256_set1_epi32(axis.half);
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (size_t at = 0; at < count; at += kColumnStep) {
    const int32_t* weights = axis.packed_of(y);
    __m256i h[4], l[4];
    for (int i = 0; i < 4; ++i) h[i] = kSplit ? _mm256_setzero_si256() : half, l[i] = half;
    for (uint32_t k = 0; k < num_groups; ++k) {
      const uint32_t* lanes = groups[k] + at;
      const __m256i upper = _mm256_set1_epi32(*weights++);
      const __m256i lower = kSplit ? _mm256_set1_epi32(*weights++) : upper;
      for (int i = 0; i < 4; ++i) {
        const __m256i values = Load256(lanes + 8 * i);
        Accumulate(h[i], values, upper);
        if (kSplit) Accumulate(l[i], values, lower);
      }
    }
    for (int i = 0; i < 4; ++i) {
      if (kSplit) h[i] = _mm256_add_epi32(_mm256_slli_epi32(h[i], AxisWeights::kLowBits), l[i]);
      h[i] = _mm256_sra_epi32(h[i], shift);
    }
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_packs_epi32(h[0], h[1]), _mm256_packs_epi32(h[2], h[3]));  // both saturate
    Store256(out + at, _mm256_permutevar8x32_epi32(bytes, order));
  }
}

void SumAnyColumns(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y, size_t count,
                   uint8_t* out) {
  (axis.digits == 2 ? SumColumns<true> : SumColumns<false>)(groups, axis, y, count, out);
}

// 16 pixels at a time: each of three vectors gathers its bytes from the planes.
EVENKEEL_AVX2 void JoinPlanesAvx2(const uint8_t* const* planes, uint32_t width, uint8_t* rgb) {
  alignas(16) uint8_t order[3][3][16];
  for (int v = 0; v < 3; ++v) {
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < 16; ++i) {
        const int to = 16 * v + i;
        order[v][c][i] = to % 3 == c ? static_cast<uint8_t>(to / 3) : 0x80;
      }
    }
  }
  uint32_t x = 0;
  for (; x + 16 <= width; x += 16, rgb += 48) {
    const __m128i r = Load128(planes[0] + x), g = Load128(planes[1] + x), b = Load128(planes[2] + x);
    for (int v = 0; v < 3; ++v) {
      const __m128i joined = _mm_or_si128(
          _mm_or_si128(_mm_shuffle_epi8(r, Load128(order[v][0])), _mm_shuffle_epi8(g, Load128(order[v][1]))),
          _mm_shuffle_epi8(b, Load128(order[v][2])));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb + 16 * v), joined);
    }
  }
  for (; x < width; ++x, rgb += 3) {
    for (int c = 0; c < 3; ++c) rgb[c] = planes[c][x];
  }
}

// 16 pixels at a time: each plane gathers its bytes from three vectors.
EVENKEEL_AVX2 void SplitPlanesAvx2(const uint8_t* rgb, uint32_t width, uint8_t* planes) {
  alignas(16) uint8_t order[3][3][16];
  for (int c = 0; c < 3; ++c) {
    for (int v = 0; v < 3; ++v) {
      for (int i = 0; i < 16; ++i) {
        const int from = 3 * i + c - 16 * v;
        order[c][v][i] = from >= 0 && from < 16 ? static_cast<uint8_t>(from) : 0x80;
      }
    }
  }
  uint32_t x = 0;
  for (; x + 16 <= width; x += 16) {
    const uint8_t* from = rgb + size_t{3} * x;
    const __m128i v0 = Load128(from), v1 = Load128(from + 16), v2 = Load128(from + 32);
    for (uint32_t c = 0; c < 3; ++c) {
      const __m128i plane = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(v0, Load128(order[c][0])),
                                                      _mm_shuffle_epi8(v1, Load128(order[c][1]))),
                                         _mm_shuffle_epi8(v2, Load128(order[c][2])));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(planes + size_t{c} * width + x), plane);
    }
  }
  for (; x < width; ++x) {
    for (uint32_t c = 0; c < 3; ++c) planes[size_t{c} * width + x] = rgb[size_t{3} * x + c];
  }
}

}  // namespace

const ResizeKernels* Avx2Kernels() {
  static constexpr ResizeKernels kKernels = {WeightForm::kWords, FilterAnyBand,   GroupRows,     SplitGroup,
                                             SumAnyColumns,      SplitPlanesAvx2, JoinPlanesAvx2};
  return MayUseFasterInstructions() && __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace evenkeel

#else

namespace evenkeel {

const ResizeKernels* Avx2Kernels() { return nullptr; }

}  // namespace evenkeel

#endif
