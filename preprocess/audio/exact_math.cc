// Series for sin, cos, log and exp after an exact reduction of the argument, so that only +, -, * and /
// round.
#include "preprocess/audio/exact_math.h"

#include <bit>
#include <cmath>
#include <utility>

namespace evenkeel::preprocess {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2High = 6.93147180369123816490e-01;  // 32 bits: its product with an exponent is exact
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kLn2 = 0.693147180559945309417;
constexpr double kInverseLn10 = 0.434294481903251827651;
constexpr double kSqrt2 = 1.41421356237309504880;

// Taylor series on [0, pi/4], from the smallest term to the largest.
double SmallSin(double x) {
  double square = x * x, sum = 0;
  for (int n = 19; n >= 3; n -= 2) sum = (1 + sum) * (-square / (n * (n - 1)));
  return x + x * sum;
}
double SmallCos(double x) {
  double square = x * x, sum = 0;
  for (int n = 18; n >= 2; n -= 2) sum = (1 + sum) * (-square / (n * (n - 1)));
  return 1 + sum;
}

}  // namespace

Rotation RotationOf(uint32_t numerator, uint32_t denominator) {
  // Reduced exactly to an octant and a remainder of at most pi/4; the other octants follow by symmetry.
  uint64_t eighths = uint64_t{numerator % denominator} * 8;
  uint64_t octant = eighths / denominator;
  uint64_t rest = eighths % denominator;
  if (octant % 2 == 1) rest = denominator - rest;
  double angle = static_cast<double>(rest) / denominator * (kPi / 4);
  double c = SmallCos(angle), s = SmallSin(angle);
  if (octant % 4 == 1 || octant % 4 == 2) std::swap(c, s);
  if (octant >= 2 && octant < 6) c = -c;
  if (octant >= 4) s = -s;
  return {c, s};
}

double ExactLog(double x) {
  // x = mantissa * 2^exponent with the mantissa in (sqrt(1/2), sqrt(2)], where the series converges fast.
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (mantissa > kSqrt2) {
    mantissa *= 0.5;
    ++exponent;
  }
  // ln m = 2 atanh((m - 1) / (m + 1)), where the argument is below 0.1716.
  double s = (mantissa - 1) / (mantissa + 1);
  double square = s * s, sum = 0;
  for (int n = 23; n >= 3; n -= 2) sum = (sum + 1.0 / n) * square;
  return exponent * kLn2High + (exponent * kLn2Low + (2 * s + 2 * s * sum));
}

double ExactLog10(double x) { return ExactLog(x) * kInverseLn10; }

double ExactExp(double x) {
  // x = exponent * ln 2 + rest with |rest| <= ln(2) / 2. ln 2 is split into two parts, so that the
  // subtraction loses no bits.
  double exponent = std::nearbyint(x / kLn2);
  double rest = (x - exponent * kLn2High) - exponent * kLn2Low;
  double sum = 0;
  for (int n = 18; n >= 1; --n) sum = (1 + sum) * (rest / n);
  auto bits = static_cast<uint64_t>(static_cast<int64_t>(exponent) + 1023) << 52;
  return (1 + sum) * std::bit_cast<double>(bits);
}

}  // namespace evenkeel::preprocess
