#include "preprocess/audio/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>

namespace evenkeel::preprocess {
namespace {

TEST(ExactMath, RotationsAgreeWithTheLibraryToTheLastDigits) {
  for (uint32_t denominator : {1u, 7u, 25u, 200u, 400u}) {
    for (uint32_t i = 0; i < 2 * denominator; ++i) {
      long double angle = 2 * 3.14159265358979323846264338327950288L * i / denominator;
      Rotation rotation = RotationOf(i, denominator);
      EXPECT_NEAR(rotation.cos, static_cast<double>(std::cos(angle)), 1e-15) << i << "/" << denominator;
      EXPECT_NEAR(rotation.sin, static_cast<double>(std::sin(angle)), 1e-15) << i << "/" << denominator;
    }
  }
}

TEST(ExactMath, QuarterTurnsAreExact) {
  EXPECT_EQ(RotationOf(0, 400).cos, 1);
  EXPECT_EQ(RotationOf(100, 400).sin, 1);
  EXPECT_EQ(RotationOf(200, 400).cos, -1);
  EXPECT_EQ(RotationOf(300, 400).sin, -1);
}

TEST(ExactMath, LogarithmsAndExponentialsAgreeWithTheLibrary) {
  for (double x = 1e-11; x < 1e12; x *= 1.0371) {
    EXPECT_NEAR(ExactLog(x), std::log(x), 4e-15 * (1 + std::abs(std::log(x))));
    EXPECT_NEAR(ExactLog10(x), std::log10(x), 4e-15 * (1 + std::abs(std::log10(x))));
  }
  for (double x = -30; x < 30; x += 0.0137) EXPECT_NEAR(ExactExp(x) / std::exp(x), 1, 4e-15);
  EXPECT_EQ(ExactLog(1), 0);
  EXPECT_EQ(ExactExp(0), 1);
}

}  // namespace
}  // namespace evenkeel::preprocess
