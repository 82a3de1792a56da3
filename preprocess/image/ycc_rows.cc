// Converts rows of Y, Cb and Cr to RGB with libjpeg-turbo's arithmetic, portably and with AVX2.
#include "preprocess/image/ycc_rows.h"

#include <algorithm>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "core/cpu.h"

namespace evenkeel::preprocess {
namespace {

// JFIF's matrix, as in jdcolor.c: R = Y + 1.402 Cr, G = Y - 0.344136 Cb - 0.714136 Cr, B = Y + 1.772 Cb, with
// chroma from -128 to 127 and factors in 1/65536. A product is below 2^24, so 32 bits hold every sum exactly.
constexpr int32_t kRedOfCr = 91881, kBlueOfCb = 116130, kGreenOfCr = -46802, kGreenOfCb = -22554;
constexpr int kColourBits = 16;
constexpr int32_t kHalf = 1 << (kColourBits - 1);

uint8_t Clipped(int32_t value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// `cb` and `cr` are centred at 0. Adding half and shifting rounds to nearest; the shift of a negative sum
// rounds down, as the library's RIGHT_SHIFT does. Both products of green are added before they are rounded,
// once.
void PutPixel(int32_t y, int32_t cb, int32_t cr, uint32_t x, uint8_t* const* planes) {
  planes[0][x] = Clipped(y + ((kRedOfCr * cr + kHalf) >> kColourBits));
  planes[1][x] = Clipped(y + ((kGreenOfCb * cb + kGreenOfCr * cr + kHalf) >> kColourBits));
  planes[2][x] = Clipped(y + ((kBlueOfCb * cb + kHalf) >> kColourBits));
}

// Chroma of full height has the same unit as that of half the height, a quarter, so that one horizontal
// filter serves both.
void SumRow(const uint8_t* row, size_t count, int16_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<int16_t>(4 * row[i]);
}

void SumRows(const uint8_t* upper, const uint8_t* lower, size_t count, int16_t* upper_out,
             int16_t* lower_out) {
  for (size_t i = 0; i < count; ++i) {
    upper_out[i] = static_cast<int16_t>(3 * upper[i] + lower[i]);
    lower_out[i] = static_cast<int16_t>(3 * lower[i] + upper[i]);
  }
}

// A column of chroma is centred between two pixels, so a pixel is a quarter of a column away from its own
// column and three quarters from its neighbour's: the weights are 3/4 and 1/4. With sums in quarters, 3 *
// near + far is in sixteenths, at most 16 * 255, and fits 16 bits. Even pixels have their neighbour before
// their own column, odd ones after it; columns are counted from the repeated one before the first, hence the
// 1 in `near`.
void HalvedToRgb(const uint8_t* luma, const ChromaSums& chroma, const ChromaRounding& rounding,
                 uint32_t width, uint8_t* const* planes) {
  for (uint32_t x = 0; x < width; ++x) {
    const uint32_t near = x / 2 + 1, far = x % 2 == 0 ? near - 1 : near + 1;
    const int32_t add = x % 2 == 0 ? rounding.even : rounding.odd;
    auto value = [&](const int16_t* sums) { return ((3 * sums[near] + sums[far] + add) >> 4) - 128; };
    PutPixel(luma[x], value(chroma.cb), value(chroma.cr), x, planes);
  }
}

void FullToRgb(const uint8_t* luma, const uint8_t* cb, const uint8_t* cr, uint32_t width,
               uint8_t* const* planes) {
  for (uint32_t x = 0; x < width; ++x) PutPixel(luma[x], cb[x] - 128, cr[x] - 128, x, planes);
}

#ifdef __x86_64__
#define EVENKEEL_AVX2 __attribute__((target("avx2")))
#define EVENKEEL_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

constexpr size_t kSumBlock = 16;

EVENKEEL_AVX2_INLINE __m256i Load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
EVENKEEL_AVX2_INLINE void Store(void* to, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}
EVENKEEL_AVX2_INLINE __m256i LoadWidened(const uint8_t* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

EVENKEEL_AVX2 void Avx2SumRow(const uint8_t* row, size_t count, int16_t* out) {
  size_t i = 0;
  for (; i + kSumBlock <= count; i += kSumBlock) {
    Store(out + i, _mm256_slli_epi16(LoadWidened(row + i), 2));
  }
  SumRow(row + i, count - i, out + i);
}

// 3a + b is computed as (a + b) + 2a, so that both rows share the sum.
EVENKEEL_AVX2 void Avx2SumRows(const uint8_t* upper, const uint8_t* lower, size_t count, int16_t* upper_out,
                               int16_t* lower_out) {
  size_t i = 0;
  for (; i + kSumBlock <= count; i += kSumBlock) {
    const __m256i a = LoadWidened(upper + i), b = LoadWidened(lower + i);
    const __m256i sum = _mm256_add_epi16(a, b);
    Store(upper_out + i, _mm256_add_epi16(sum, _mm256_slli_epi16(a, 1)));
    Store(lower_out + i, _mm256_add_epi16(sum, _mm256_slli_epi16(b, 1)));
  }
  SumRows(upper + i, lower + i, count - i, upper_out + i, lower_out + i);
}

// Values of 16 pixels as words; chroma is centred at 0.
struct Words {
  __m256i y, cb, cr;
};
struct RgbWords {
  __m256i red, green, blue;
};

// mulhrs gives (a * b + 2^14) >> 15 in 16 bits, so its factor must be below 1: the whole part of 1.402 and of
// 1.772 (taken as 2 - 0.228) is added afterwards. Its factors have 15 fraction bits. For all 256 values of
// chroma that gives the same result as 16 bits. Green is a sum of two products, which are rounded together,
// so it needs all bits.
EVENKEEL_AVX2_INLINE RgbWords ToRgb(const Words& in) {
  const __m256i red = _mm256_mulhrs_epi16(in.cr, _mm256_set1_epi16((kRedOfCr - 65536) / 2));
  const __m256i blue = _mm256_mulhrs_epi16(in.cb, _mm256_set1_epi16((kBlueOfCb - 2 * 65536) / 2));
  // Both factors are even, so their halves fit 16 bits without a loss.
  const __m256i factors = _mm256_set1_epi32(static_cast<int32_t>(
      static_cast<uint16_t>(kGreenOfCb / 2) | uint32_t{static_cast<uint16_t>(kGreenOfCr / 2)} << 16));
  const __m256i half = _mm256_set1_epi32(kHalf / 2);
  const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(in.cb, in.cr), factors);
  const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(in.cb, in.cr), factors);
  const __m256i green = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), kColourBits - 1),
                                           _mm256_srai_epi32(_mm256_add_epi32(high, half), kColourBits - 1));
  return {_mm256_add_epi16(_mm256_add_epi16(in.y, in.cr), red), _mm256_add_epi16(in.y, green),
          _mm256_add_epi16(_mm256_add_epi16(in.y, _mm256_slli_epi16(in.cb, 1)), blue)};
}

// Interleaves even and odd pixels into a block. Packing two vectors of words leaves, in each half, eight
// bytes of even pixels before eight of odd ones; the shuffle alternates them.
EVENKEEL_AVX2_INLINE void PutBlock(const Words& even, const Words& odd, uint32_t x, uint8_t* const* planes) {
  const __m256i order = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15,  //
                                         0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  const RgbWords a = ToRgb(even), b = ToRgb(odd);
  Store(planes[0] + x, _mm256_shuffle_epi8(_mm256_packus_epi16(a.red, b.red), order));
  Store(planes[1] + x, _mm256_shuffle_epi8(_mm256_packus_epi16(a.green, b.green), order));
  Store(planes[2] + x, _mm256_shuffle_epi8(_mm256_packus_epi16(a.blue, b.blue), order));
}

// The words of a vector of bytes: pixels 0, 2, 4, ... and 1, 3, 5, ... These lie in the order in which one
// column of chroma serves one of each.
EVENKEEL_AVX2_INLINE __m256i Even(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi16(0xff)); }
EVENKEEL_AVX2_INLINE __m256i Odd(__m256i bytes) { return _mm256_srli_epi16(bytes, 8); }

// Sixteen columns of chroma, centred at 0, for their even and odd pixels.
struct Widened {
  __m256i even, odd;
};
EVENKEEL_AVX2_INLINE Widened Widen(const int16_t* sums, __m256i add_even, __m256i add_odd) {
  const __m256i here = Load(sums + 1);
  const __m256i three = _mm256_add_epi16(here, _mm256_slli_epi16(here, 1));
  const __m256i even = _mm256_add_epi16(_mm256_add_epi16(three, Load(sums)), add_even);
  const __m256i odd = _mm256_add_epi16(_mm256_add_epi16(three, Load(sums + 2)), add_odd);
  return {_mm256_srai_epi16(even, 4), _mm256_srai_epi16(odd, 4)};
}

// The centre of chroma, 128 in sixteenths, is subtracted together with the rounding, before the shift: one
// addition less, and the same result, since the centre is a multiple of the divisor.
EVENKEEL_AVX2 void Avx2HalvedToRgb(const uint8_t* luma, const ChromaSums& chroma,
                                   const ChromaRounding& rounding, uint32_t width, uint8_t* const* planes) {
  constexpr int kCentre = 16 * 128;
  const __m256i even = _mm256_set1_epi16(static_cast<int16_t>(rounding.even - kCentre));
  const __m256i odd = _mm256_set1_epi16(static_cast<int16_t>(rounding.odd - kCentre));
  for (uint32_t x = 0; x < width; x += kYccBlock) {
    const __m256i y = Load(luma + x);
    const Widened cb = Widen(chroma.cb + x / 2, even, odd), cr = Widen(chroma.cr + x / 2, even, odd);
    PutBlock({Even(y), cb.even, cr.even}, {Odd(y), cb.odd, cr.odd}, x, planes);
  }
}

EVENKEEL_AVX2 void Avx2FullToRgb(const uint8_t* luma, const uint8_t* cb_row, const uint8_t* cr_row,
                                 uint32_t width, uint8_t* const* planes) {
  const __m256i centre = _mm256_set1_epi16(128);
  for (uint32_t x = 0; x < width; x += kYccBlock) {
    const __m256i y = Load(luma + x), cb = Load(cb_row + x), cr = Load(cr_row + x);
    PutBlock({Even(y), _mm256_sub_epi16(Even(cb), centre), _mm256_sub_epi16(Even(cr), centre)},
             {Odd(y), _mm256_sub_epi16(Odd(cb), centre), _mm256_sub_epi16(Odd(cr), centre)}, x, planes);
  }
}
#endif

}  // namespace

const YccKernels& YccKernelsOf(YccPath path) {
  static constexpr YccKernels kPortable = {SumRow, SumRows, HalvedToRgb, FullToRgb};
#ifdef __x86_64__
  static constexpr YccKernels kAvx2 = {Avx2SumRow, Avx2SumRows, Avx2HalvedToRgb, Avx2FullToRgb};
  if (path == YccPath::kFastest && MayUseAvx2()) return kAvx2;
#endif
  return kPortable;
}

}  // namespace evenkeel::preprocess
