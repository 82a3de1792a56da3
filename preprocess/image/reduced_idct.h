// Blocks of a JPEG as 4x4 or 2x2 pixels: the inverse transform of only the lowest 4x4 or 2x2 frequencies.
//
// With a[0] = 1 and a[k] = sqrt(2), pixel (x, y) of a block of side N is 128 plus an eighth of the sum over
// u, v < N of a[u] a[v] F[v][u] cos((2x + 1) u pi / 2N) cos((2y + 1) v pi / 2N). This is the picture after an
// ideal low-pass filter, sampled at N points a side. libjpeg-turbo's own reduced transforms average
// neighbouring pixels and need nearly all coefficients.
//
// Thread safety: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evenkeel::preprocess {

// `coefficients` and `quantities` are [8][8], vertical frequency first; products are taken modulo 2^16.
// Writes columns [column, column + side) of `side` rows.
using ReducedIdct = void(const int16_t* coefficients, const uint16_t* quantities, uint8_t* const* rows,
                         size_t column);

ReducedIdct ReducedIdct2;
// With the architecture's vector instructions, and without; both give the same bytes.
ReducedIdct ReducedIdct4;
ReducedIdct PortableReducedIdct4;

}  // namespace evenkeel::preprocess
