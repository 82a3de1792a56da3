#include "preprocess/image/reduced_idct.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tests/mutations.h"

namespace evenkeel::preprocess {
namespace {

constexpr size_t kSide = 8, kRow = 12, kColumn = 5;
constexpr uint8_t kUntouched = 77;

struct Block {
  std::array<int16_t, kSide * kSide> coefficients{};
  std::array<uint16_t, kSide * kSide> quantities{};
};
using Pixels = std::array<uint8_t, kSide * kRow>;

Pixels Transformed(ReducedIdct* transform, const Block& block) {
  Pixels pixels;
  pixels.fill(kUntouched);
  uint8_t* rows[kSide];
  for (size_t y = 0; y < kSide; ++y) rows[y] = pixels.data() + kRow * y;
  transform(block.coefficients.data(), block.quantities.data(), rows, kColumn);
  return pixels;
}

// Of a picture's kind, nearly all zero at high frequencies; or anything.
Block Draw(Dice& dice, bool anything) {
  Block block;
  for (size_t i = 0; i < block.coefficients.size(); ++i) {
    const auto quantity = static_cast<uint16_t>(anything ? dice.Roll(0x10000) : 1 + dice.Roll(40));
    block.quantities[i] = quantity;
    const uint64_t frequency = i / kSide + i % kSide;
    const uint64_t range = anything ? 0x10000 : 1 + 900 / quantity / (1 + frequency * frequency);
    const auto value = static_cast<int32_t>(dice.Roll(2 * range + 1)) - static_cast<int32_t>(range);
    block.coefficients[i] = static_cast<int16_t>(value);
    if (anything && dice.Roll(4) == 0)
      block.coefficients[i] = dice.Roll(2) == 0 ? int16_t{-0x8000} : int16_t{0x7fff};
  }
  return block;
}

// As the header has it.
double Defined(const Block& block, uint32_t side, uint32_t x, uint32_t y) {
  double sum = 0;
  for (uint32_t v = 0; v < side; ++v) {
    for (uint32_t u = 0; u < side; ++u) {
      const double value = double(block.coefficients[kSide * v + u]) * block.quantities[kSide * v + u];
      const double angle = M_PI / (2 * side);
      sum += value * (u == 0 ? 1 : M_SQRT2) * (v == 0 ? 1 : M_SQRT2) * std::cos((2 * x + 1) * u * angle) *
             std::cos((2 * y + 1) * v * angle);
    }
  }
  return std::clamp(128 + sum / 8, 0.0, 255.0);
}

TEST(ReducedIdct, IsTheInverseTransformOfTheLowestFrequencies) {
  Dice dice(41);
  for (int round = 0; round < 3000; ++round) {
    const Block block = Draw(dice, false);
    for (uint32_t side : {2u, 4u}) {
      const Pixels pixels = Transformed(side == 4 ? ReducedIdct4 : ReducedIdct2, block);
      for (uint32_t y = 0; y < side; ++y) {
        for (uint32_t x = 0; x < side; ++x) {
          // Half a step, and what 13 bits and three kept ones lose.
          ASSERT_NEAR(pixels[kRow * y + kColumn + x], Defined(block, side, x, y), side == 4 ? 0.57 : 0.5001);
        }
      }
    }
  }
}

TEST(ReducedIdct, BothWaysGiveTheSameBytesWhateverTheCoefficients) {
  Dice dice(42);
  for (int round = 0; round < 30000; ++round) {
    Block block = Draw(dice, round % 2 == 1);
    if (round % 8 >= 4) {  // one colour, or all but one frequency
      const int16_t first = block.coefficients[0];
      const size_t at = dice.Roll(block.coefficients.size());
      const int16_t other = round % 8 >= 6 ? block.coefficients[at] : int16_t{0};
      block.coefficients.fill(0);
      block.coefficients[at] = other, block.coefficients[0] = first;
    }
    ASSERT_EQ(Transformed(ReducedIdct4, block), Transformed(PortableReducedIdct4, block)) << round;
  }
}

TEST(ReducedIdct, WritesNoOtherPixels) {
  Dice dice(43);
  const Block block = Draw(dice, true);
  const std::pair<ReducedIdct*, size_t> all[] = {
      {ReducedIdct2, 2}, {ReducedIdct4, 4}, {PortableReducedIdct4, 4}};
  for (const auto& [transform, side] : all) {
    const Pixels pixels = Transformed(transform, block);
    for (size_t i = 0; i < pixels.size(); ++i) {
      const size_t x = i % kRow, y = i / kRow;
      if (y >= side || x < kColumn || x >= kColumn + side) {
        EXPECT_EQ(pixels[i], kUntouched) << side << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
