// Converts rows of a JPEG's planes (Y, Cb, Cr) to RGB planes, with the bytes of libjpeg-turbo's fancy
// upsampling.
//
// Sources of the formulas: jdsample.c (h2v1_fancy_upsample, h2v2_fancy_upsample) and jdcolor.c. Chroma of
// half the width is interpolated between the centres of its pixels: three quarters of the nearer one, a
// quarter of the other; the same between rows if it has half the height. Both roundings alternate from column
// to column. Thread safety: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evenkeel::preprocess {

// Luma, chroma and planes are read and written in blocks of this many pixels. Values beyond a row are
// ignored, but the memory must exist.
inline constexpr size_t kYccBlock = 32;

// Chroma of half the width before horizontal interpolation: one value in quarters for each column, from the
// column before the first to the one after the last, which repeat the edge columns.
struct ChromaSums {
  const int16_t* cb;
  const int16_t* cr;
};
// Added to sixteen times the value of an even or odd column before the shift.
struct ChromaRounding {
  int16_t even;
  int16_t odd;
};
inline constexpr ChromaRounding kOneRowRounding = {4, 8};
inline constexpr ChromaRounding kTwoRowsRounding = {8, 7};

struct YccKernels {
  // Four times each of `count` values.
  void (*sum_row)(const uint8_t* row, size_t count, int16_t* out);
  // From two rows of chroma: three times the upper plus the lower, and the other way round.
  void (*sum_rows)(const uint8_t* upper, const uint8_t* lower, size_t count, int16_t* upper_out,
                   int16_t* lower_out);
  // A row of `width` pixels with chroma of half the width.
  void (*halved_to_rgb)(const uint8_t* luma, const ChromaSums& chroma, const ChromaRounding& rounding,
                        uint32_t width, uint8_t* const* planes);
  // A row with chroma of full width; `planes` may be the input rows.
  void (*full_to_rgb)(const uint8_t* luma, const uint8_t* cb, const uint8_t* cr, uint32_t width,
                      uint8_t* const* planes);
};

// kFastest: the best that this CPU has and the environment allows. Both give the same bytes.
enum class YccPath : uint8_t { kFastest, kPortable };
const YccKernels& YccKernelsOf(YccPath path);

}  // namespace evenkeel::preprocess
