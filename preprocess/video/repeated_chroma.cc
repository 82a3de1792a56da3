// libswscale's default YUV to RGB conversion in integers, as portable code and with AVX2.
#include "preprocess/video/repeated_chroma.h"

#include <algorithm>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace evenkeel::preprocess {
namespace {

// swscale's code without filters (yuv2rgb, libswscale/x86/yuv_2_rgb.asm): each pixel takes the chroma of its
// pair, and
//   R = Y' + v_red * V,  G = Y' + u_green * U + v_green * V,  B = Y' + u_blue * U,  Y' = y * (luma - black).
// Values have 3 fraction bits and coefficients 13, so the upper 16 bits of a product are its whole part.
// Every product is rounded down by itself, so a sum is a little below the exact value, and has to be, for
// equal bytes.
constexpr int kBits = 3;               // fraction bits of luma and chroma
constexpr int kCentre = 128 << kBits;  // the chroma value of grey

// The upper 16 bits of a product, rounded down (pmulhw). Arguments have at most 12 and 16 bits.
int Upper(int value, int16_t coefficient) { return value * coefficient >> 16; }

uint8_t Byte(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// Converts the pixels from `first`, which is even, to `width`.
void PortableRow(const RepeatedChroma& c, const uint8_t* luma, const uint8_t* u, const uint8_t* v, int first,
                 int width, uint8_t* const out[3]) {
  for (int x = first; x < width; ++x) {
    const int y = Upper((luma[x] << kBits) - c.black, c.y);
    const int blue_difference = (u[x / 2] << kBits) - kCentre;
    const int red_difference = (v[x / 2] << kBits) - kCentre;
    out[0][x] = Byte(y + Upper(red_difference, c.v_red));
    out[1][x] = Byte(y + Upper(blue_difference, c.u_green) + Upper(red_difference, c.v_green));
    out[2][x] = Byte(y + Upper(blue_difference, c.u_blue));
  }
}

#ifdef __x86_64__
#define EVENKEEL_AVX2 __attribute__((target("avx2")))

constexpr int kBlock = 32;  // pixels per iteration

// Adds luma and a chroma term for 32 pixels, as bytes. unpacklo and unpackhi duplicate each chroma value, and
// select the same halves as the unpacking of luma did, so that packing restores the order of the pixels.
EVENKEEL_AVX2 inline __m256i Sums(const __m256i luma[2], __m256i chroma) {
  return _mm256_packus_epi16(_mm256_adds_epi16(luma[0], _mm256_unpacklo_epi16(chroma, chroma)),
                             _mm256_adds_epi16(luma[1], _mm256_unpackhi_epi16(chroma, chroma)));
}

// Sixteen chroma values, which serve 32 pixels, centred at 0.
EVENKEEL_AVX2 inline __m256i Chroma(const uint8_t* from) {
  const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm256_sub_epi16(_mm256_slli_epi16(words, kBits), _mm256_set1_epi16(kCentre));
}

EVENKEEL_AVX2 inline void Store(uint8_t* to, __m256i bytes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
}

EVENKEEL_AVX2 void Avx2Row(const RepeatedChroma& c, const uint8_t* luma, const uint8_t* u, const uint8_t* v,
                           int width, uint8_t* const out[3]) {
  const __m256i zero = _mm256_setzero_si256(), black = _mm256_set1_epi16(c.black);
  const __m256i y = _mm256_set1_epi16(c.y), v_red = _mm256_set1_epi16(c.v_red);
  const __m256i u_green = _mm256_set1_epi16(c.u_green), v_green = _mm256_set1_epi16(c.v_green);
  const __m256i u_blue = _mm256_set1_epi16(c.u_blue);
  const int even = width & ~1;
  for (int next = 0; next < even; next += kBlock) {
    const int x = std::min(next, even - kBlock);  // the last block may overlap the one before
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(luma + x));
    __m256i sums[2] = {_mm256_unpacklo_epi8(bytes, zero), _mm256_unpackhi_epi8(bytes, zero)};
    for (__m256i& sum : sums)
      sum = _mm256_mulhi_epi16(_mm256_sub_epi16(_mm256_slli_epi16(sum, kBits), black), y);
    const __m256i blue_difference = Chroma(u + x / 2), red_difference = Chroma(v + x / 2);
    const __m256i green = _mm256_adds_epi16(_mm256_mulhi_epi16(blue_difference, u_green),
                                            _mm256_mulhi_epi16(red_difference, v_green));
    Store(out[0] + x, Sums(sums, _mm256_mulhi_epi16(red_difference, v_red)));
    Store(out[1] + x, Sums(sums, green));
    Store(out[2] + x, Sums(sums, _mm256_mulhi_epi16(blue_difference, u_blue)));
  }
  PortableRow(c, luma, u, v, even, width, out);
}
#undef EVENKEEL_AVX2
#endif

}  // namespace

// As CoefficientsOf in frame_rgb.cc, which explains the table, but clamped to 16 bits, and with black in
// eighths like luma.
RepeatedChroma RepeatedChromaOf(const int* table, bool full_range) {
  int64_t v_red = table[0], u_blue = table[1], u_green = -table[2], v_green = -table[3];
  int64_t y = 1 << 16;
  if (full_range) {
    for (int64_t* chroma : {&v_red, &u_blue, &u_green, &v_green}) *chroma = *chroma * 224 / 255;
  } else {
    y = y * 255 / 219;
  }
  auto rounded = [](int64_t value) {
    return static_cast<int16_t>(std::clamp<int64_t>((value * (1 << 13) + (1 << 15)) >> 16, -0x7fff, 0x7fff));
  };
  return {static_cast<int16_t>(full_range ? 0 : 16 << kBits),
          rounded(y),
          rounded(v_red),
          rounded(u_green),
          rounded(v_green),
          rounded(u_blue)};
}

void ConvertRepeated(const RepeatedChroma& c, const uint8_t* luma, const uint8_t* u, const uint8_t* v,
                     int width, bool vectors, uint8_t* const out[3]) {
#ifdef __x86_64__
  if (vectors && width >= kBlock) return Avx2Row(c, luma, u, v, width, out);
#endif
  (void)vectors;
  PortableRow(c, luma, u, v, 0, width, out);
}

}  // namespace evenkeel::preprocess
