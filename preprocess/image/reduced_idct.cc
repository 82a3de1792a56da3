// Inverse transforms of 8x8 blocks to 4x4 and 2x2 pixels in fixed point: first along columns, then along
// rows. reduced_idct.h has the formula.
#include "preprocess/image/reduced_idct.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace evenkeel::preprocess {
namespace {

constexpr int kSide = 8;  // of a block of coefficients
constexpr int32_t kCentre = 128;

// sqrt(2) cos(k pi / 8) for k = 1 and 3; for k = 2 it is 1.
constexpr int kBits = 13;
constexpr int32_t kOne = 1 << kBits, kWide = 10703, kNarrow = 4433;
// Fraction bits after the first pass. The second pass removes them and divides by eight.
constexpr int kKept = 3;
constexpr int kFirstShift = kBits - kKept, kSecondShift = kBits + kKept + 3;
constexpr int32_t kFirstRound = 1 << (kFirstShift - 1);
constexpr int32_t kSecondRound = (kCentre << kSecondShift) + (1 << (kSecondShift - 1));

// Products are taken modulo 2^16, as in the vector code.
int32_t Dequantised(int16_t coefficient, uint16_t quantity) {
  return static_cast<int16_t>(static_cast<uint16_t>(coefficient) * uint32_t{quantity});
}
uint8_t Clipped(int32_t value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }
// The pixel for a sum over the frequencies. For a block with only the first frequency, that is the sum.
uint8_t PixelOf(int32_t sum) { return Clipped((sum + 8 * kCentre + 4) >> 3); }

// Four values of a line from its four 16-bit frequencies; sums fit 32 bits. Even frequencies are symmetric
// about the middle of the line and odd ones antisymmetric, so four products serve two values each.
void Transform(const int32_t in[4], int32_t round, int shift, int32_t out[4]) {
  const int32_t outer = kOne * (in[0] + in[2]) + round, inner = kOne * (in[0] - in[2]) + round;
  const int32_t most = kWide * in[1] + kNarrow * in[3], least = kNarrow * in[1] - kWide * in[3];
  out[0] = (outer + most) >> shift, out[1] = (inner + least) >> shift;
  out[2] = (inner - least) >> shift, out[3] = (outer - most) >> shift;
}

}  // namespace

void PortableReducedIdct4(const int16_t* coefficients, const uint16_t* quantities, uint8_t* const* rows,
                          size_t column) {
  int32_t lines[4][4];  // [y][u]
  for (int u = 0; u < 4; ++u) {
    int32_t in[4], out[4];
    for (int v = 0; v < 4; ++v) in[v] = Dequantised(coefficients[kSide * v + u], quantities[kSide * v + u]);
    Transform(in, kFirstRound, kFirstShift, out);
    for (int y = 0; y < 4; ++y) lines[y][u] = std::clamp(out[y], -0x8000, 0x7fff);
  }
  for (int y = 0; y < 4; ++y) {
    int32_t out[4];
    Transform(lines[y], kSecondRound, kSecondShift, out);
    for (int x = 0; x < 4; ++x) rows[y][column + x] = Clipped(out[x]);
  }
}

#ifdef __SSE2__
namespace {

// Four words from each of two places.
inline __m128i LoadTwo(const void* low, const void* high) {
  return _mm_unpacklo_epi64(_mm_loadl_epi64(static_cast<const __m128i*>(low)),
                            _mm_loadl_epi64(static_cast<const __m128i*>(high)));
}
// The same two words in every lane.
inline __m128i Words(int32_t low, int32_t high) {
  return _mm_set1_epi32(
      static_cast<int32_t>(static_cast<uint16_t>(low) | uint32_t{static_cast<uint16_t>(high)} << 16));
}

// The same for four lines at once: a lane has frequencies 0 and 2, or 1 and 3, of one line.
template <int kShift>
inline void Transform(__m128i even, __m128i odd, int32_t round, __m128i (&out)[4]) {
  const __m128i add = _mm_set1_epi32(round);
  const __m128i outer = _mm_add_epi32(_mm_madd_epi16(even, Words(kOne, kOne)), add);
  const __m128i inner = _mm_add_epi32(_mm_madd_epi16(even, Words(kOne, -kOne)), add);
  const __m128i most = _mm_madd_epi16(odd, Words(kWide, kNarrow));
  const __m128i least = _mm_madd_epi16(odd, Words(kNarrow, -kWide));
  out[0] = _mm_srai_epi32(_mm_add_epi32(outer, most), kShift);
  out[1] = _mm_srai_epi32(_mm_add_epi32(inner, least), kShift);
  out[2] = _mm_srai_epi32(_mm_sub_epi32(inner, least), kShift);
  out[3] = _mm_srai_epi32(_mm_sub_epi32(outer, most), kShift);
}

// Words 0 1 2 3 of each half become 0 2 1 3.
inline __m128i EvenThenOdd(__m128i words) {
  constexpr int kOrder = _MM_SHUFFLE(3, 1, 2, 0);
  return _mm_shufflehi_epi16(_mm_shufflelo_epi16(words, kOrder), kOrder);
}

// Whether the lowest 4x4 frequencies are zero except the first. The first one is not loaded together with
// others: the decoder has just stored it, and a wider load would wait for that store.
inline bool HasOneColour(const int16_t* coefficients) {
  if ((coefficients[1] | coefficients[kSide]) != 0) return false;
  auto line = [coefficients](int from) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(coefficients + from));
  };
  const __m128i any = _mm_or_si128(_mm_or_si128(_mm_slli_epi64(line(1), 16), line(kSide)),
                                   _mm_or_si128(line(2 * kSide), line(3 * kSide)));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(any, _mm_setzero_si128())) == 0xffff;
}

}  // namespace

void ReducedIdct4(const int16_t* coefficients, const uint16_t* quantities, uint8_t* const* rows,
                  size_t column) {
  if (HasOneColour(coefficients)) {
    const uint32_t row = PixelOf(Dequantised(coefficients[0], quantities[0])) * 0x01010101u;
    for (int y = 0; y < 4; ++y) std::memcpy(rows[y] + column, &row, 4);
    return;
  }
  // Two rows of four coefficients at a time, dequantised.
  auto two_lines = [&](int v) {
    return _mm_mullo_epi16(LoadTwo(coefficients + kSide * v, coefficients + kSide * (v + 1)),
                           LoadTwo(quantities + kSide * v, quantities + kSide * (v + 1)));
  };
  const __m128i upper = two_lines(0), lower = two_lines(2);
  __m128i out[4];  // [y], one lane for each u
  Transform<kFirstShift>(_mm_unpacklo_epi16(upper, lower), _mm_unpackhi_epi16(upper, lower), kFirstRound,
                         out);
  // A transposition: from lanes of one u to lanes of one y, even and odd frequencies apart.
  const __m128 first = _mm_castsi128_ps(EvenThenOdd(_mm_packs_epi32(out[0], out[1])));
  const __m128 second = _mm_castsi128_ps(EvenThenOdd(_mm_packs_epi32(out[2], out[3])));
  const __m128 even = _mm_shuffle_ps(first, second, _MM_SHUFFLE(2, 0, 2, 0));
  const __m128 odd = _mm_shuffle_ps(first, second, _MM_SHUFFLE(3, 1, 3, 1));
  // Now [x], one lane for each y.
  Transform<kSecondShift>(_mm_castps_si128(even), _mm_castps_si128(odd), kSecondRound, out);
  __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(out[0], out[1]), _mm_packs_epi32(out[2], out[3]));
  // a 4x4 transposition of bytes
  for (int i = 0; i < 2; ++i) bytes = _mm_unpacklo_epi8(bytes, _mm_srli_si128(bytes, 8));
  for (int y = 0; y < 4; ++y, bytes = _mm_srli_si128(bytes, 4)) {
    const int32_t row = _mm_cvtsi128_si32(bytes);
    std::memcpy(rows[y] + column, &row, 4);
  }
}
#else
void ReducedIdct4(const int16_t* coefficients, const uint16_t* quantities, uint8_t* const* rows,
                  size_t column) {
  PortableReducedIdct4(coefficients, quantities, rows, column);
}
#endif

void ReducedIdct2(const int16_t* coefficients, const uint16_t* quantities, uint8_t* const* rows,
                  size_t column) {
  auto at = [&](int v, int u) { return Dequantised(coefficients[kSide * v + u], quantities[kSide * v + u]); };
  for (int y = 0; y < 2; ++y) {
    // sqrt(2) cos(pi / 4) is 1, so sums and differences suffice.
    const int32_t left = y == 0 ? at(0, 0) + at(1, 0) : at(0, 0) - at(1, 0);
    const int32_t right = y == 0 ? at(0, 1) + at(1, 1) : at(0, 1) - at(1, 1);
    rows[y][column] = PixelOf(left + right);
    rows[y][column + 1] = PixelOf(left - right);
  }
}

}  // namespace evenkeel::preprocess
