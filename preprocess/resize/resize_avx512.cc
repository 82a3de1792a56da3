// The resizer's inner loops for AVX-512 with VNNI.
//
// If an output needs few inputs, rows are filtered in their own order: sixteen bytes of a row have the inputs
// of four neighbouring outputs, and one instruction places four inputs of each next to each other. If it
// needs many, sixteen rows are filtered at once: a vector holds four neighbouring pixels of one channel in
// all rows, so that every lane of a multiplication is used and a weight is loaded once for all rows.
//
// One instruction multiplies four bytes with one digit of four weights and adds the products. Rows are
// transposed in steps of sixteen pixels; the part that the next outputs still need is moved to the front of
// the buffer. The sums of four outputs, packed to bytes, are exactly the lanes that the vertical filter
// takes.
#include "preprocess/resize/resize_avx512.h"

#ifdef __x86_64__
#include <algorithm>
#include <cstring>

#include "core/cpu.h"
#include "preprocess/resize/resize.h"
#include "preprocess/resize/resize_avx2.h"
#include "preprocess/resize/resize_band.h"

// A test emulates these instructions to run this file on any core, and defines the following itself.
#ifndef EVENKEEL_AVX512
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own header, PR105593
#endif
#include <immintrin.h>

#define EVENKEEL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define EVENKEEL_AVX512_INLINE EVENKEEL_AVX512 __attribute__((always_inline)) inline

namespace evenkeel::preprocess {
namespace {

bool MayUseAvx512Vnni() { return MayUseAvx512() && __builtin_cpu_supports("avx512vnni"); }

// sum += bytes * digits of weights. Inline assembly, because with the intrinsic GCC 12 copies the sums and
// loads the bytes again for every digit.
EVENKEEL_AVX512_INLINE void Accumulate(__m512i& sum, __m512i bytes, __m512i digits) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(digits));
}

}  // namespace
}  // namespace evenkeel::preprocess
#endif

namespace evenkeel::preprocess {
namespace {

constexpr size_t kQuadBytes = 3 * 4 * kBandRows;  // four pixels in all rows and channels
constexpr uint32_t kStepQuads = kStepPixels / kQuadPixels;
constexpr uint32_t kSlackQuads = 8 * kStepQuads;  // quads that are made ahead
constexpr size_t kAhead = 512;                    // distance of the prefetch, in bytes of a row
static_assert(kBandRows == 16 && kColumnBlock == 64);

EVENKEEL_AVX512_INLINE __m512i Load512(const void* from) { return _mm512_loadu_si512(from); }
EVENKEEL_AVX512_INLINE __m128i Load128(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// 16 bytes of rows i, i + 4, i + 8 and i + 12.
EVENKEEL_AVX512_INLINE __m512i LoadRows(const uint8_t* const rows[kBandRows], int i, size_t at) {
  __m512i four = _mm512_castsi128_si512(Load128(rows[i] + at));
  four = _mm512_inserti32x4(four, Load128(rows[i + 4] + at), 1);
  four = _mm512_inserti32x4(four, Load128(rows[i + 8] + at), 2);
  return _mm512_inserti32x4(four, Load128(rows[i + 12] + at), 3);
}

// Loads 16 bytes of one row from each of four places.
EVENKEEL_AVX512_INLINE __m512i LoadWindows(const uint8_t* row, const uint32_t (&at)[4]) {
  __m512i four = _mm512_castsi128_si512(Load128(row + at[0]));
  four = _mm512_inserti32x4(four, Load128(row + at[1]), 1);
  four = _mm512_inserti32x4(four, Load128(row + at[2]), 2);
  return _mm512_inserti32x4(four, Load128(row + at[3]), 3);
}

// Transposes four interleaved pixels of 16 rows into R, G and B with a lane for each row. Reads 16 bytes of
// each row.
EVENKEEL_AVX512_INLINE void MakeQuad(const uint8_t* const rows[kBandRows], size_t at, uint8_t* out) {
  // The order within a row: r0 r1 r2 r3 g0 g1 g2 g3 b0 b1 b2 b3.
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
  __m512i a[4];
  for (int i = 0; i < 4; ++i) a[i] = _mm512_shuffle_epi8(LoadRows(rows, i, at), order);
  const __m512i rg01 = _mm512_unpacklo_epi32(a[0], a[1]), rg23 = _mm512_unpacklo_epi32(a[2], a[3]);
  const __m512i b01 = _mm512_unpackhi_epi32(a[0], a[1]), b23 = _mm512_unpackhi_epi32(a[2], a[3]);
  _mm512_store_si512(out, _mm512_unpacklo_epi64(rg01, rg23));
  _mm512_store_si512(out + 64, _mm512_unpackhi_epi64(rg01, rg23));
  _mm512_store_si512(out + 128, _mm512_unpacklo_epi64(b01, b23));
}

// Transposes sixteen pixels of one plane of 16 rows into that channel of four quads, as 32-bit elements.
EVENKEEL_AVX512_INLINE void MakeChannel(const uint8_t* const rows[kBandRows], size_t at, uint8_t* out) {
  const __m512i a0 = LoadRows(rows, 0, at), a1 = LoadRows(rows, 1, at);
  const __m512i a2 = LoadRows(rows, 2, at), a3 = LoadRows(rows, 3, at);
  const __m512i low01 = _mm512_unpacklo_epi32(a0, a1), low23 = _mm512_unpacklo_epi32(a2, a3);
  const __m512i high01 = _mm512_unpackhi_epi32(a0, a1), high23 = _mm512_unpackhi_epi32(a2, a3);
  _mm512_store_si512(out, _mm512_unpacklo_epi64(low01, low23));
  _mm512_store_si512(out + kQuadBytes, _mm512_unpackhi_epi64(low01, low23));
  _mm512_store_si512(out + 2 * kQuadBytes, _mm512_unpacklo_epi64(high01, high23));
  _mm512_store_si512(out + 3 * kQuadBytes, _mm512_unpackhi_epi64(high01, high23));
}

// Makes the quads of one step from pixel `x`.
template <bool kPlanes>
EVENKEEL_AVX512_INLINE void MakeQuads(const BandRows& band, uint32_t x, uint8_t* out) {
  if constexpr (kPlanes) {
    for (int c = 0; c < 3; ++c) MakeChannel(band.plane[c], x, out + 64 * c);
  } else {
    for (uint32_t i = 0; i < kStepQuads; ++i) {
      MakeQuad(band.plane[0], size_t{3} * (x + kQuadPixels * i), out + kQuadBytes * i);
    }
  }
}

// The sums of one vector of bytes, one for each digit. Separate variables, because the compiler keeps arrays
// in memory.
template <int kDigits>
struct Sums {
  __m512i high, middle, low;

  EVENKEEL_AVX512_INLINE explicit Sums(__m512i half)
      : high(_mm512_setzero_si512()), middle(high), low(half) {}
  EVENKEEL_AVX512_INLINE void Add(__m512i bytes, __m512i highs, __m512i middles, __m512i lows) {
    Accumulate(high, bytes, highs);
    if constexpr (kDigits == 3) Accumulate(middle, bytes, middles);
    Accumulate(low, bytes, lows);
  }
  // (high * 2^16 + middle * 2^8 + low) >> shift, or (high * 2^8 + low) >> shift with two digits: the sum of
  // the whole weights' products, since a weight is the sum of its digits times these powers. `low` began with
  // a half, for rounding.
  EVENKEEL_AVX512_INLINE __m512i Shifted(__m128i shift) const {
    __m512i sum = high;
    if constexpr (kDigits == 3) sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), middle);
    return _mm512_sra_epi32(_mm512_add_epi32(_mm512_slli_epi32(sum, 8), low), shift);
  }
};

// One output pixel of 16 rows: one sum for each row and channel.
template <int kDigits>
EVENKEEL_AVX512_INLINE void SumQuads(const uint8_t* quads, const AxisWeights& axis, uint32_t x,
                                     __m512i (&out)[3]) {
  const int32_t* weights = axis.packed_of(x);
  const __m512i half = _mm512_set1_epi32(axis.half);
  Sums<kDigits> red(half), green(half), blue(half);
  // A quad of pixels per turn: three vectors of bytes, each times two or three digits.
  for (uint32_t k = axis.num_groups[x]; k > 0; --k, quads += kQuadBytes, weights += kDigits) {
    const __m512i high = _mm512_set1_epi32(weights[0]), middle = _mm512_set1_epi32(weights[1]);
    const __m512i low = kDigits == 3 ? _mm512_set1_epi32(weights[2]) : middle;
    red.Add(Load512(quads), high, middle, low);
    green.Add(Load512(quads + 64), high, middle, low);
    blue.Add(Load512(quads + 128), high, middle, low);
  }
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  out[0] = red.Shifted(shift), out[1] = green.Shifted(shift), out[2] = blue.Shifted(shift);
}

using QuadWindow = GroupWindow<uint8_t, kQuadBytes>;

// Makes quads until `needed` exist; those before `first` may be dropped.
template <bool kPlanes>
EVENKEEL_AVX512 void Extend(const BandRows& band, uint32_t first, uint32_t needed, QuadWindow& window) {
  // Outputs that need few inputs leave gaps between them, which may be longer than the window.
  if (first > window.end) window.begin = window.end = first / kStepQuads * kStepQuads;
  window.MakeRoom(first, (needed + kStepQuads - 1) / kStepQuads * kStepQuads);
  const uint32_t total = (band.width + kStepPixels - 1) / kStepPixels * kStepQuads;
  const uint32_t end = std::min(total, window.begin + window.capacity);
  for (; window.end + kStepQuads <= end; window.end += kStepQuads) {
    const uint32_t x = kQuadPixels * window.end;
    PrefetchStep<kPlanes, kAhead>(band, x);
    if (band.has_step(x)) {
      MakeQuads<kPlanes>(band, x, window.next());
    } else {
      MakeQuads<kPlanes>(BandTail(band, x).rows(), 0, window.next());
    }
  }
}

// The horizontal filter of a band, four outputs at a time: two pairs of outputs are packed from 32 to 16
// bits, then both pairs to 8 bits. Packing saturates, which is the clip to 0..255.
template <int kDigits, bool kPlanes>
EVENKEEL_AVX512 void FilterRows(const PixelBand& pixels, const AxisWeights& axis, BandScratch& scratch,
                                size_t plane, uint32_t* const* out) {
  const BandRows band(pixels, axis.in);
  QuadWindow window;
  window.capacity = axis.groups_per_output + kStepQuads - 1 + kSlackQuads;
  window.values = scratch.groups.Get<uint8_t>(window.capacity * kQuadBytes);
  window.begin = window.end = axis.first_group[0] / kStepQuads * kStepQuads;
  const uint32_t outputs = axis.outputs();
  for (uint32_t x = 0; x < outputs; x += 4) {
    __m512i pairs[2][3];  // of outputs, as 16 bits
    for (uint32_t pair = 0; pair < 2; ++pair) {
      __m512i sums[2][3];
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t at = std::min(x + 2 * pair + i, outputs - 1);
        const uint32_t first = axis.first_group[at], needed = first + axis.num_groups[at];
        if (needed > window.end) Extend<kPlanes>(band, first, needed, window);
        SumQuads<kDigits>(window.at(first), axis, at, sums[i]);
      }
      for (int c = 0; c < 3; ++c) pairs[pair][c] = _mm512_packs_epi32(sums[0][c], sums[1][c]);
      // Rows 0 to 3 with four bytes of each output, then rows 4 to 7, and so on: the lanes of the vertical
      // filter.
    }
    for (int c = 0; c < 3; ++c) {
      const __m512i bytes = _mm512_packus_epi16(pairs[0][c], pairs[1][c]);
      const size_t to = plane * c + x;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[0] + to), _mm512_castsi512_si128(bytes));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[1] + to), _mm512_extracti32x4_epi32(bytes, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[2] + to), _mm512_extracti32x4_epi32(bytes, 2));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[3] + to), _mm512_extracti32x4_epi32(bytes, 3));
    }
  }
}

// One block of sixteen outputs of all rows of a plane. Their lanes are stored at `out` + `to`.
template <int kDigits, uint32_t kQuads>
EVENKEEL_AVX512_INLINE void FilterBlock(const uint8_t* const rows[kBandRows], const AxisWeights& axis,
                                        const WindowWeights::Block& at, uint32_t* const* out, size_t to) {
  __m512i order[kQuads], highs[kQuads], middles[kQuads], lows[kQuads];
  const int32_t* digits = &axis.windows.digits[at.digits];
  for (uint32_t k = 0; k < kQuads; ++k, digits += 16 * kDigits) {
    order[k] = Load512(&axis.windows.order[at.order + 64 * k]);
    highs[k] = Load512(digits);
    middles[k] = Load512(digits + 16);
    lows[k] = Load512(digits + 16 * (kDigits - 1));
  }
  const __m512i half = _mm512_set1_epi32(axis.half);
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  // From four rows with four bytes each to lanes with one byte of each row.
  const __m512i lanes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  for (uint32_t r = 0; r < kBandRows; r += 4) {
    __m512i four[4];
    for (uint32_t i = 0; i < 4; ++i) {
      const __m512i bytes = LoadWindows(rows[r + i], at.window);
      Sums<kDigits> sums(half);
      for (uint32_t k = 0; k < kQuads; ++k) {
        sums.Add(_mm512_shuffle_epi8(bytes, order[k]), highs[k], middles[k], lows[k]);
      }
      four[i] = sums.Shifted(shift);
    }
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_packs_epi32(four[0], four[1]), _mm512_packs_epi32(four[2], four[3]));
    _mm512_storeu_si512(out[r / 4] + to + at.output, _mm512_shuffle_epi8(bytes, lanes));
  }
}

// All three planes. The number of quads is a template argument, so that order and digits of a block stay in
// registers for its sixteen rows.
template <int kDigits>
EVENKEEL_AVX512 void FilterWindows(const PixelBand& planes, const AxisWeights& axis, size_t plane,
                                   uint32_t* const* out) {
  const BandRows band(planes, axis.in);
  for (uint32_t c = 0; c < 3; ++c) {
    for (const WindowWeights::Block& at : axis.windows.blocks) {
      switch (at.groups) {
        case 1:
          FilterBlock<kDigits, 1>(band.plane[c], axis, at, out, plane * c);
          break;
        case 2:
          FilterBlock<kDigits, 2>(band.plane[c], axis, at, out, plane * c);
          break;
        case 3:
          FilterBlock<kDigits, 3>(band.plane[c], axis, at, out, plane * c);
          break;
        default:  // no window holds more
          static_assert(WindowWeights::kInputs == 16);
          FilterBlock<kDigits, 4>(band.plane[c], axis, at, out, plane * c);
      }
    }
  }
}

void FilterBand(const PixelBand& band, const AxisWeights& axis, BandScratch& scratch, size_t plane,
                uint32_t* const* out) {
  const bool two = axis.digits == 2;
  if (!axis.windows.blocks.empty()) {
    (two ? FilterWindows<2> : FilterWindows<3>)(band, axis, plane, out);
  } else if (band.interleaved()) {
    (two ? FilterRows<2, false> : FilterRows<3, false>)(band, axis, scratch, plane, out);
  } else {
    (two ? FilterRows<2, true> : FilterRows<3, true>)(band, axis, scratch, plane, out);
  }
}

// The vertical filter for output row `y`: a lane has four source rows of a column, so one instruction adds
// four products.
template <int kDigits>
EVENKEEL_AVX512 void SumDigits(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y,
                               size_t count, uint8_t* out) {
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  const __m512i half = _mm512_set1_epi32(axis.half);
  // Packing takes four columns of each vector in turn; this restores their order.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const uint32_t num_groups = axis.num_groups[y];
  for (size_t at = 0; at < count; at += kColumnBlock) {
    const int32_t* weights = axis.packed_of(y);
    Sums<kDigits> a(half), b(half), c(half), d(half);
    for (uint32_t k = 0; k < num_groups; ++k, weights += kDigits) {
      const uint32_t* lanes = groups[k] + at;
      const __m512i first = _mm512_set1_epi32(weights[0]), second = _mm512_set1_epi32(weights[1]);
      const __m512i last = kDigits == 3 ? _mm512_set1_epi32(weights[2]) : second;
      a.Add(Load512(lanes), first, second, last);
      b.Add(Load512(lanes + 16), first, second, last);
      c.Add(Load512(lanes + 32), first, second, last);
      d.Add(Load512(lanes + 48), first, second, last);
    }
    const __m512i low = _mm512_packs_epi32(a.Shifted(shift), b.Shifted(shift));
    const __m512i high = _mm512_packs_epi32(c.Shifted(shift), d.Shifted(shift));
    _mm512_storeu_si512(out + at, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
  }
}

void SumGroups(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y, size_t count,
               uint8_t* out) {
  (axis.digits == 2 ? SumDigits<2> : SumDigits<3>)(groups, axis, y, count, out);
}

}  // namespace

const ResizeKernels* Avx512Kernels() {
  if (Avx2Kernels() == nullptr) return nullptr;
  static const ResizeKernels kKernels = {WeightForm::kBytes,
                                         4,
                                         FilterBand,
                                         GroupRowsOfBytes,
                                         SplitGroupOfBytes,
                                         SumGroups,
                                         Avx2Kernels()->split_planes,
                                         Avx2Kernels()->join_planes};
  return MayUseAvx512Vnni() ? &kKernels : nullptr;
}

}  // namespace evenkeel::preprocess

#else

namespace evenkeel::preprocess {

const ResizeKernels* Avx512Kernels() { return nullptr; }

}  // namespace evenkeel::preprocess

#endif
