// Rows of a JPEG's own planes (Y, Cb, Cr) to RGB planes: the bytes of libjpeg-turbo with fancy upsampling.
//
// Sources of the formulas: jdsample.c (h2v1_fancy_upsample, h2v2_fancy_upsample) and jdcolor.c. Chroma of
// half the width is interpolated between the centres of its pixels: three quarters of the nearer, one of the
// other; the same between rows where it has half the height. Both roundings alternate from column to column.
//
// Thread safety: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evenkeel::preprocess {

// Luma, chroma and planes are read and written in blocks of as many pixels; what lies beyond a row is of no
// account, but must be there.
inline constexpr size_t kYccBlock = 32;

// Chroma of half the width, before it is widened: one value for each column, in quarters, of the column
// before the first one to the one behind the last, which are those beside them.
struct ChromaSums {
  const int16_t* cb;
  const int16_t* cr;
};
// What is added to sixteen times an even or odd column's value before it is shortened.
struct ChromaRounding {
  int16_t even;
  int16_t odd;
};
inline constexpr ChromaRounding kOneRowRounding = {4, 8};
inline constexpr ChromaRounding kTwoRowsRounding = {8, 7};

struct YccKernels {
  // Four times each of `count` values.
  void (*sum_row)(const uint8_t* row, size_t count, int16_t* out);
  // Of two rows of chroma: three times the upper one and the lower one, and the other way round.
  void (*sum_rows)(const uint8_t* upper, const uint8_t* lower, size_t count, int16_t* upper_out,
                   int16_t* lower_out);
  // A row of `width` pixels whose chroma has half its width.
  void (*halved_to_rgb)(const uint8_t* luma, const ChromaSums& chroma, const ChromaRounding& rounding,
                        uint32_t width, uint8_t* const* planes);
  // A row whose chroma has its width; `planes` may be where it is read from.
  void (*full_to_rgb)(const uint8_t* luma, const uint8_t* cb, const uint8_t* cr, uint32_t width,
                      uint8_t* const* planes);
};

// kFastest: what this CPU has and the environment allows; both give the same bytes.
enum class YccPath : uint8_t { kFastest, kPortable };
const YccKernels& YccKernelsOf(YccPath path);

}  // namespace evenkeel::preprocess
