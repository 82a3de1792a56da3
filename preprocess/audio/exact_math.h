// Elementary functions made of additions, multiplications and divisions, so that every CPU gives the same
// bits: the C library's results differ with and without fused multiply-add.
//
// Absolute errors are below 1e-15 for the trigonometric functions, relative ones below 1e-15 for the others.
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace evenkeel::preprocess {

// cos and sin of numerator / denominator of a full turn.
struct Rotation {
  double cos = 1;
  double sin = 0;
};
Rotation RotationOf(uint32_t numerator, uint32_t denominator);

// `x`: positive, finite and normal.
double ExactLog(double x);
double ExactLog10(double x);
// |x| at most 700.
double ExactExp(double x);

}  // namespace evenkeel::preprocess
