// Sixteen rows are filtered at once: a vector holds one channel of one pair of pixels in all rows, so that
// every lane of every multiplication is of use and a weight is loaded once for all rows. Rows are brought
// into that order in steps of four pixels; what the outputs to come still need of it slides to the front.
#include "preprocess/resize_avx2.h"

#ifdef __x86_64__
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define EVENKEEL_AVX2 __attribute__((target("avx2")))
#define EVENKEEL_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline
#define EVENKEEL_AVX2_INLINE_LAMBDA __attribute__((target("avx2"), always_inline))

namespace evenkeel {
namespace {

constexpr uint32_t kStepPixels = 4;
constexpr uint32_t kStepBytes = 3 * kStepPixels;
constexpr size_t kPairValues =
    3 * 2 * kBandRows;                // 16-bit values of a pair of pixels in all rows and channels
constexpr uint32_t kSlackPairs = 64;  // how far ahead pairs are made
constexpr uint32_t kColumnBlock = 32;
constexpr size_t kAhead = 512;  // bytes of a row

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

// How a product is added: with AVX2 in two instructions, with AVX-512's VNNI in one of the same vectors.
enum class Add { kTwoSteps, kFused };

// sum += values * weights. The sums of a loop fill the registers; without the barrier the compiler would
// compute all products first and keep them in memory. The fused instruction is assembled here, so that it
// needs no functions of another target.
template <Add kAdd>
EVENKEEL_AVX2_INLINE void Accumulate(__m256i& sum, __m256i values, __m256i weights) {
  if constexpr (kAdd == Add::kFused) {
    asm("vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(weights), "x"(values));
  } else {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(values, weights));
    asm("" : "+x"(sum));
  }
}

// One output pixel of 16 rows: three times 16 bytes.
template <bool kSplit, Add kAdd>
EVENKEEL_AVX2_INLINE void SumBand(const int16_t* pairs, const AxisWeights& axis, uint32_t x, uint8_t* out) {
  const int32_t* high = axis.high.data() + size_t{x} * axis.pairs_per_output;
  const int32_t* low = kSplit ? axis.low.data() + size_t{x} * axis.pairs_per_output : nullptr;
  const __m256i half = _mm256_set1_epi32(axis.half);
  __m256i h0 = kSplit ? _mm256_setzero_si256() : half, h1 = h0, h2 = h0, h3 = h0, h4 = h0, h5 = h0;
  __m256i l0 = half, l1 = half, l2 = half, l3 = half, l4 = half, l5 = half;
  for (uint32_t k = 0, count = axis.num_pairs[x]; k < count; ++k, pairs += kPairValues) {
    const __m256i upper = _mm256_set1_epi32(high[k]);
    const __m256i lower = kSplit ? _mm256_set1_epi32(low[k]) : upper;
    auto both = [&](__m256i& h, __m256i& l, const int16_t* from) EVENKEEL_AVX2_INLINE_LAMBDA {
      const __m256i values = Load256(from);
      Accumulate<kAdd>(h, values, upper);
      if (kSplit) Accumulate<kAdd>(l, values, lower);
    };
    both(h0, l0, pairs), both(h1, l1, pairs + 16), both(h2, l2, pairs + 32);
    both(h3, l3, pairs + 48), both(h4, l4, pairs + 64), both(h5, l5, pairs + 80);
  }
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  auto bytes_of = [&](__m256i ha, __m256i la, __m256i hb, __m256i lb) EVENKEEL_AVX2 {
    if (kSplit) {
      ha = _mm256_add_epi32(_mm256_slli_epi32(ha, AxisWeights::kLowBits), la);
      hb = _mm256_add_epi32(_mm256_slli_epi32(hb, AxisWeights::kLowBits), lb);
    }
    return _mm256_packs_epi32(_mm256_sra_epi32(ha, shift), _mm256_sra_epi32(hb, shift));  // rows 0-7, 8-15
  };
  const __m256i r = bytes_of(h0, l0, h1, l1), g = bytes_of(h2, l2, h3, l3), b = bytes_of(h4, l4, h5, l5);
  const __m256i rg = _mm256_permute4x64_epi64(_mm256_packus_epi16(r, g), 0xd8);
  const __m256i bb = _mm256_permute4x64_epi64(_mm256_packus_epi16(b, b), 0xd8);
  constexpr size_t kPlane = kBandRows * kBandRows;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(rg));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + kPlane), _mm256_extracti128_si256(rg, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * kPlane), _mm256_castsi256_si128(bb));
}

// 16 x 16 bytes: in[16 * x + row] -> out[stride * row + x], x < width, row < rows.
EVENKEEL_AVX2 void TransposeBytes(const uint8_t* in, uint32_t width, uint32_t rows, uint8_t* out,
                                  size_t stride) {
  __m128i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = Load128(in + 16 * i);
  auto zip = [](const __m128i* from, __m128i* to) EVENKEEL_AVX2 {
    for (int i = 0; i < 8; ++i) {
      to[2 * i] = _mm_unpacklo_epi8(from[i], from[i + 8]);
      to[2 * i + 1] = _mm_unpackhi_epi8(from[i], from[i + 8]);
    }
  };
  zip(a, b), zip(b, a), zip(a, b), zip(b, a);
  if (width == 16 && rows == kBandRows) {
    for (int i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + stride * i), a[i]);
    return;
  }
  for (uint32_t r = 0; r < rows; ++r) std::memcpy(out + stride * r, &a[r], width);
}

// The pairs of a band that the outputs to come need: [begin, end).
struct PairWindow {
  int16_t* values = nullptr;
  uint32_t capacity = 0;
  uint32_t begin = 0;
  uint32_t end = 0;

  const int16_t* at(uint32_t pair) const { return values + kPairValues * (pair - begin); }
};

struct BandRows {
  const uint8_t* row[kBandRows];
  size_t bytes;  // of a row
};

// Makes pairs until `needed` are there; those before `first` may go.
EVENKEEL_AVX2 void Extend(const BandRows& band, uint32_t first, uint32_t needed, PairWindow& window) {
  if (needed - window.begin > window.capacity) {
    const uint32_t kept_from = std::min(first, window.end) & ~1u;
    std::memmove(window.values, window.at(kept_from),
                 (window.end - kept_from) * kPairValues * sizeof(int16_t));
    window.begin = kept_from;
  }
  const auto total = static_cast<uint32_t>((band.bytes / 3 + kStepPixels - 1) / kStepPixels * 2);
  const uint32_t end = std::min(total, window.begin + window.capacity);
  for (; window.end < end; window.end += 2) {
    const size_t at = size_t{3} * 2 * window.end;
    int16_t* out = window.values + kPairValues * (window.end - window.begin);
    if (at % 64 < kStepBytes) {  // sixteen rows are more streams than a prefetcher follows
      for (const uint8_t* row : band.row) {
        _mm_prefetch(reinterpret_cast<const char*>(row + at + kAhead), _MM_HINT_T0);
      }
    }
    if (at + 16 <= band.bytes) {
      MakePairs(band.row, at, out);
      continue;
    }
    uint8_t tails[kBandRows][16] = {};
    const uint8_t* rows[kBandRows];
    for (uint32_t r = 0; r < kBandRows; ++r) {
      std::memcpy(tails[r], band.row[r] + at, std::min<size_t>(kStepBytes, band.bytes - at));
      rows[r] = tails[r];
    }
    MakePairs(rows, 0, out);
  }
}

template <bool kSplit, Add kAdd>
EVENKEEL_AVX2 void FilterBand(const uint8_t* rgb, size_t stride, uint32_t rows, const AxisWeights& axis,
                              BandScratch& scratch, uint8_t* out, size_t out_stride) {
  BandRows band;
  band.bytes = size_t{3} * axis.in;
  for (uint32_t r = 0; r < kBandRows; ++r) band.row[r] = rgb + stride * std::min(r, rows - 1);
  PairWindow window;
  window.capacity = (axis.pairs_per_output + 3 + kSlackPairs) & ~1u;
  window.values = scratch.pairs.Get(window.capacity * kPairValues);
  window.begin = window.end = axis.first_pair[0] & ~1u;
  alignas(32) uint8_t block[3 * kBandRows * kBandRows];
  const uint32_t outputs = axis.outputs();
  for (uint32_t x = 0; x < outputs; ++x) {
    const uint32_t first = axis.first_pair[x], needed = first + axis.num_pairs[x];
    if (needed > window.end) Extend(band, first, needed, window);
    const uint32_t in_block = x % kBandRows;
    SumBand<kSplit, kAdd>(window.at(first), axis, x, block + kBandRows * in_block);
    if (in_block + 1 < kBandRows && x + 1 < outputs) continue;
    for (uint32_t c = 0; c < 3; ++c) {
      TransposeBytes(block + c * kBandRows * kBandRows, in_block + 1, rows,
                     out + size_t{c} * outputs + x - in_block, out_stride);
    }
  }
}

template <Add kAdd>
EVENKEEL_AVX2 void FilterAnyBand(const uint8_t* rgb, size_t stride, uint32_t rows, const AxisWeights& axis,
                                 BandScratch& scratch, uint8_t* out, size_t out_stride) {
  (axis.split() ? FilterBand<true, kAdd> : FilterBand<false, kAdd>)(rgb, stride, rows, axis, scratch, out,
                                                                    out_stride);
}

EVENKEEL_AVX2 void PairRowsAvx2(const uint8_t* even, const uint8_t* odd, size_t count, int16_t* out) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i a = Load128(even + i), b = Load128(odd + i);
    Store256(out + 2 * i, _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)));
    Store256(out + 2 * i + 16, _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b)));
  }
  if (i < count) ResizeKernelsOf(ResizePath::kPortable).pair_rows(even + i, odd + i, count - i, out + 2 * i);
}

template <bool kSplit, Add kAdd>
EVENKEEL_AVX2_INLINE void SumColumns(const int16_t* const* pairs, const AxisWeights& axis, uint32_t y,
                                     size_t at, uint8_t* out) {
  const int32_t* high = axis.high.data() + size_t{y} * axis.pairs_per_output;
  const int32_t* low = kSplit ? axis.low.data() + size_t{y} * axis.pairs_per_output : nullptr;
  const __m256i half = _mm256_set1_epi32(axis.half);
  __m256i h[4], l[4];
  for (int i = 0; i < 4; ++i) h[i] = kSplit ? _mm256_setzero_si256() : half, l[i] = half;
  for (uint32_t k = 0, count = axis.num_pairs[y]; k < count; ++k) {
    const int16_t* pair = pairs[k] + 2 * at;
    const __m256i upper = _mm256_set1_epi32(high[k]);
    const __m256i lower = kSplit ? _mm256_set1_epi32(low[k]) : upper;
    for (int i = 0; i < 4; ++i) {
      const __m256i values = Load256(pair + 16 * i);
      Accumulate<kAdd>(h[i], values, upper);
      if (kSplit) Accumulate<kAdd>(l[i], values, lower);
    }
  }
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  for (int i = 0; i < 4; ++i) {
    if (kSplit) h[i] = _mm256_add_epi32(_mm256_slli_epi32(h[i], AxisWeights::kLowBits), l[i]);
    h[i] = _mm256_sra_epi32(h[i], shift);
  }
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_packs_epi32(h[0], h[1]), _mm256_packs_epi32(h[2], h[3]));  // both saturate
  Store256(out + at, _mm256_permutevar8x32_epi32(bytes, order));
}

template <bool kSplit, Add kAdd>
EVENKEEL_AVX2 void SumPairs(const int16_t* const* pairs, const AxisWeights& axis, uint32_t y, size_t count,
                            uint8_t* out) {
  if (count < kColumnBlock)
    return ResizeKernelsOf(ResizePath::kPortable).sum_pairs(pairs, axis, y, count, out);
  size_t at = 0;
  for (; at + kColumnBlock <= count; at += kColumnBlock) SumColumns<kSplit, kAdd>(pairs, axis, y, at, out);
  if (at < count) SumColumns<kSplit, kAdd>(pairs, axis, y, count - kColumnBlock, out);  // some of them again
}

template <Add kAdd>
EVENKEEL_AVX2 void SumAnyPairs(const int16_t* const* pairs, const AxisWeights& axis, uint32_t y, size_t count,
                               uint8_t* out) {
  (axis.split() ? SumPairs<true, kAdd> : SumPairs<false, kAdd>)(pairs, axis, y, count, out);
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
  static constexpr ResizeKernels kKernels = {FilterAnyBand<Add::kTwoSteps>, PairRowsAvx2,
                                             SumAnyPairs<Add::kTwoSteps>, SplitPlanesAvx2};
  return __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

const ResizeKernels* VnniKernels() {
  static constexpr ResizeKernels kKernels = {FilterAnyBand<Add::kFused>, PairRowsAvx2,
                                             SumAnyPairs<Add::kFused>, SplitPlanesAvx2};
  const bool there = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512vnni");
  return there ? &kKernels : nullptr;
}

}  // namespace evenkeel

#else

namespace evenkeel {

const ResizeKernels* Avx2Kernels() { return nullptr; }
const ResizeKernels* VnniKernels() { return nullptr; }

}  // namespace evenkeel

#endif
