#include "preprocess/resize_kernels.h"

#include <algorithm>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace evenkeel {
namespace {

constexpr int kSplitBits = 15;
constexpr uint32_t kGroup = 4;  // taps

uint8_t Clip(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kResizePrecision, 0, 255)); }

void SumPixels(const uint8_t* pixels, uint32_t count, const int32_t* weights, uint8_t* out) {
  int32_t r = kResizeHalf, g = kResizeHalf, b = kResizeHalf;
  for (uint32_t k = 0; k < count; ++k, pixels += 3) {
    r += pixels[0] * weights[k];
    g += pixels[1] * weights[k];
    b += pixels[2] * weights[k];
  }
  out[0] = Clip(r), out[1] = Clip(g), out[2] = Clip(b);
}

void FilterRow(const uint8_t* row, const uint8_t*, const AxisWeights& axis, const SplitWeights&,
               uint8_t* out) {
  for (size_t x = 0; x < axis.first.size(); ++x) {
    SumPixels(row + size_t{3} * axis.first[x], axis.count[x], &axis.weights[x * axis.taps], out + 3 * x);
  }
}

// Columns in blocks that stay in registers.
void SumRows(const uint8_t* rows, size_t stride, uint32_t count, const int32_t* weights, size_t width,
             uint8_t* out) {
  constexpr size_t kBlock = 16;
  for (size_t begin = 0; begin < width; begin += kBlock) {
    const size_t block = std::min(kBlock, width - begin);
    int32_t sums[kBlock];
    std::fill(sums, sums + kBlock, kResizeHalf);
    for (uint32_t k = 0; k < count; ++k) {
      const uint8_t* row = rows + k * stride + begin;
      for (size_t i = 0; i < block; ++i) sums[i] += row[i] * weights[k];
    }
    for (size_t i = 0; i < block; ++i) out[begin + i] = Clip(sums[i]);
  }
}

#ifdef __x86_64__

// Four taps of a pixel at a time: their channels in pairs of 16 bits, taps 0 and 1 in the lower half of a
// vector, 2 and 3 in the upper.
__attribute__((target("avx2"))) void FilterRowAvx2(const uint8_t* row, const uint8_t* end,
                                                   const AxisWeights& axis, const SplitWeights& split,
                                                   uint8_t* out) {
  const __m256i pairs = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                         6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  const int16_t* high = split.high.data();
  const int16_t* low = split.low.data();
  for (size_t x = 0; x < axis.first.size();
       ++x, high += kGroup * split.groups, low += kGroup * split.groups) {
    const uint8_t* pixels = row + size_t{3} * axis.first[x];
    const uint32_t groups = (axis.count[x] + kGroup - 1) / kGroup;
    if (end - pixels < static_cast<ptrdiff_t>(12 * groups + 4)) {
      SumPixels(pixels, axis.count[x], &axis.weights[x * axis.taps], out + 3 * x);
      continue;
    }
    __m256i high_sum = _mm256_setzero_si256(), low_sum = _mm256_setzero_si256();
    for (uint32_t g = 0; g < groups; ++g) {
      __m256i taps =
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + 12 * g)));
      taps = _mm256_shuffle_epi8(taps, pairs);
      __m128i h = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high + kGroup * g));
      __m128i l = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(low + kGroup * g));
      __m256i high_weights = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(h), spread);
      __m256i low_weights = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(l), spread);
      high_sum = _mm256_add_epi32(high_sum, _mm256_madd_epi16(taps, high_weights));
      low_sum = _mm256_add_epi32(low_sum, _mm256_madd_epi16(taps, low_weights));
    }
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high_sum, kSplitBits), low_sum);
    __m128i pixel = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    pixel = _mm_srai_epi32(_mm_add_epi32(pixel, _mm_set1_epi32(kResizeHalf)), kResizePrecision);
    pixel = _mm_packus_epi16(_mm_packs_epi32(pixel, pixel), pixel);  // both saturate
    const uint32_t bytes = static_cast<uint32_t>(_mm_cvtsi128_si32(pixel));
    out[3 * x] = static_cast<uint8_t>(bytes);
    out[3 * x + 1] = static_cast<uint8_t>(bytes >> 8);
    out[3 * x + 2] = static_cast<uint8_t>(bytes >> 16);
  }
}

__attribute__((target("avx2"))) void SumRowsAvx2(const uint8_t* rows, size_t stride, uint32_t count,
                                                 const int32_t* weights, size_t width, uint8_t* out) {
  constexpr size_t kBlock = 32;
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  size_t i = 0;
  for (; i + kBlock <= width; i += kBlock) {
    __m256i a = _mm256_set1_epi32(kResizeHalf), b = a, c = a, d = a;
    for (uint32_t k = 0; k < count; ++k) {
      const auto* row = reinterpret_cast<const __m128i*>(rows + k * stride + i);
      const __m256i weight = _mm256_set1_epi32(weights[k]);
      const __m128i first = _mm_loadu_si128(row), second = _mm_loadu_si128(row + 1);
      a = _mm256_add_epi32(a, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(first), weight));
      b = _mm256_add_epi32(b, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(first, 8)), weight));
      c = _mm256_add_epi32(c, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(second), weight));
      d = _mm256_add_epi32(d, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(second, 8)), weight));
    }
    __m256i ab =
        _mm256_packs_epi32(_mm256_srai_epi32(a, kResizePrecision), _mm256_srai_epi32(b, kResizePrecision));
    __m256i cd =
        _mm256_packs_epi32(_mm256_srai_epi32(c, kResizePrecision), _mm256_srai_epi32(d, kResizePrecision));
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), bytes);
  }
  if (i < width) SumRows(rows + i, stride, count, weights, width - i, out + i);
}

#endif

}  // namespace

SplitWeights SplitOf(const AxisWeights& axis) {
  SplitWeights split;
  split.groups = (axis.taps + kGroup - 1) / kGroup;
  const size_t padded = size_t{kGroup} * split.groups;
  split.high.resize(axis.first.size() * padded);
  split.low.resize(axis.first.size() * padded);
  for (size_t x = 0; x < axis.first.size(); ++x) {
    for (uint32_t k = 0; k < axis.count[x]; ++k) {
      const int32_t weight = axis.weights[x * axis.taps + k];
      split.high[x * padded + k] = static_cast<int16_t>(weight >> kSplitBits);
      split.low[x * padded + k] = static_cast<int16_t>(weight & ((1 << kSplitBits) - 1));
    }
  }
  return split;
}

ResizeKernels ResizeKernelsOf(ResizePath path) {
#ifdef __x86_64__
  if (path == ResizePath::kBest && __builtin_cpu_supports("avx2")) return {FilterRowAvx2, SumRowsAvx2};
#endif
  (void)path;
  return {FilterRow, SumRows};
}

}  // namespace evenkeel
