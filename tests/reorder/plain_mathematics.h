// Exponential, logarithm and cosine of nothing but the four operations, which IEEE 754 rounds the same
// everywhere: what is drawn with them is the same on every processor and build, as with libm it is not. Good
// to a few units in the last place; for generators of tests and benchmarks.
//
// Thread safety: pure functions.
#pragma once

#include <cmath>

namespace evenkeel::plain {

// Of |x| below 700.
inline double Exp(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const double twos = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double rest = (x - twos * kLn2High) - twos * kLn2Low;  // at most 0.35 either way
  double sum = 1;
  for (int n = 14; n > 0; --n) sum = 1 + sum * rest / n;
  return std::ldexp(sum, static_cast<int>(twos));  // exact
}

// Of a normal number above 0.
inline double Log(double x) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1, kRoot = 0x1.6a09e667f3bcdp-1;
  int twos = 0;
  double part = std::frexp(x, &twos);  // exact
  if (part < kRoot) part *= 2, --twos;
  const double s = (part - 1) / (part + 1), square = s * s;  // at most 0.172
  double sum = 0;
  for (int n = 23; n > 0; n -= 2) sum = sum * square + 1.0 / n;
  return twos * kLn2 + 2 * s * sum;
}

// The cosine of so many turns, in [0, 1].
inline double CosOfTurns(double turns) {
  constexpr double kPi = 0x1.921fb54442d18p+1;
  double off = std::abs(turns - 0.5);       // cos(2 pi turns) = -cos(2 pi off), off in [0, 0.5]
  const double sign = off > 0.25 ? 1 : -1;  // and cos(pi - x) = -cos(x)
  if (off > 0.25) off = 0.5 - off;
  const double square = 4 * kPi * kPi * off * off;  // at most pi^2 / 4
  double sum = 1;
  for (int n = 22; n > 0; n -= 2) sum = 1 - sum * square / (n * (n - 1));
  return sign * sum;
}

}  // namespace evenkeel::plain
