// Converts rows of 8-bit YUV with halved chroma to RGB8, as libswscale's default conversion for x86 does
// (libswscale/x86/yuv_2_rgb.asm, FFmpeg 4 to 8): each chroma sample serves two pixels, and products keep
// their upper 16 bits. torchcodec, PyAV and decord all use this conversion.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace evenkeel::preprocess {

// 16-bit coefficients, rounded as in libswscale (ff_yuv2rgb_c_init_tables). Luma and chroma have 3 fraction
// bits.
struct RepeatedChroma {
  int16_t black = 0;  // the luma value of black, with 3 fraction bits
  int16_t y = 0, v_red = 0, u_green = 0, v_green = 0, u_blue = 0;
};

// `table`: crv, cbu, cgu and cgv, from sws_getCoefficients.
RepeatedChroma RepeatedChromaOf(const int* table, bool full_range);

// Converts one row of `width` pixels to three planes: red, green, blue. u and v have (width + 1) / 2 samples.
// `vectors`: use AVX2, which this CPU must have; the bytes are the same.
void ConvertRepeated(const RepeatedChroma& c, const uint8_t* luma, const uint8_t* u, const uint8_t* v,
                     int width, bool vectors, uint8_t* const out[3]);

}  // namespace evenkeel::preprocess
