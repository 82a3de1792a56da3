// The resizer of floats against its definition, written the long way. What torch makes of pictures is in the goldens of
// DINOv3 (tests/golden/families.json).
#include "preprocess/resize/float_resizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace evenkeel::preprocess {
namespace {

std::array<float, 256> Scaled() {
  std::array<float, 256> table;
  for (size_t byte = 0; byte < table.size(); ++byte) {
    table[byte] = static_cast<float>(byte) * static_cast<float>(1 / 255.0);
  }
  return table;
}

// [3, height, width] bytes resized.
std::vector<float> Resized(const std::vector<uint8_t>& planes, ImageSize in, ImageSize out) {
  const std::array<float, 256> table = Scaled();
  std::vector<float> values(out.rgb_bytes(), -1);
  FloatResizer resizer;
  resizer.Start({.in = in, .out = out}, table, values);
  const size_t plane = size_t{in.width} * in.height;
  for (uint32_t y = 0; y < in.height; ++y) {
    const uint8_t* const row = planes.data() + size_t{y} * in.width;
    resizer.Take({{row, row + plane, row + 2 * plane}, in.width});
  }
  return values;
}

std::vector<uint8_t> Noise(ImageSize size, uint64_t seed) {
  std::vector<uint8_t> planes(size.rgb_bytes());
  uint64_t state = seed * 2 + 1;
  for (uint8_t& byte : planes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return planes;
}

// One place of an axis in double precision, by the triangle of torch.
double Sum(const std::vector<double>& in, uint32_t out, uint32_t i) {
  const double scale = static_cast<double>(in.size()) / out, support = std::max(scale, 1.0);
  const double center = scale * (i + 0.5);
  double sum = 0, total = 0;
  for (size_t j = 0; j < in.size(); ++j) {
    const double weight = std::max(0.0, 1 - std::abs((static_cast<double>(j) + 0.5 - center) / support));
    sum += weight * in[j], total += weight;
  }
  return sum / total;
}

TEST(FloatResizer, IsNearTheDefinitionInDoublePrecision) {
  const ImageSize sizes[][2] = {{{41, 29}, {56, 84}}, {{300, 200}, {64, 48}}, {{1, 7}, {5, 3}},
                                {{90, 1}, {16, 16}},  {{64, 64}, {64, 64}},   {{33, 100}, {100, 33}}};
  for (const auto& [in, out] : sizes) {
    const std::vector<uint8_t> planes = Noise(in, in.width);
    const std::vector<float> values = Resized(planes, in, out);
    std::vector<double> across(size_t{in.height} * out.width), row(in.width), column(in.height);
    for (size_t c = 0; c < 3; ++c) {
      for (uint32_t y = 0; y < in.height; ++y) {
        for (uint32_t x = 0; x < in.width; ++x) row[x] = planes[(c * in.height + y) * in.width + x] / 255.0;
        for (uint32_t x = 0; x < out.width; ++x) across[y * out.width + x] = Sum(row, out.width, x);
      }
      for (uint32_t x = 0; x < out.width; ++x) {
        for (uint32_t y = 0; y < in.height; ++y) column[y] = across[y * out.width + x];
        for (uint32_t y = 0; y < out.height; ++y) {
          ASSERT_NEAR(values[(c * out.height + y) * out.width + x], Sum(column, out.height, y), 2e-6)
              << in.width << "x" << in.height << " " << c << " " << y << " " << x;
        }
      }
    }
  }
}

TEST(FloatResizer, KeepsAPictureOfTheSameSizeBitForBit) {
  const ImageSize size{37, 23};
  const std::vector<uint8_t> planes = Noise(size, 4);
  const std::array<float, 256> table = Scaled();
  const std::vector<float> values = Resized(planes, size, size);
  for (size_t i = 0; i < planes.size(); ++i) ASSERT_EQ(values[i], table[planes[i]]) << i;
}

TEST(FloatResizer, KeepsNothingOfThePictureBefore) {
  const ImageSize large{50, 40}, small{7, 5}, out{16, 16};
  const std::array<float, 256> table = Scaled();
  std::vector<float> first(out.rgb_bytes()), again(out.rgb_bytes());
  FloatResizer resizer;
  const auto run = [&](ImageSize in, std::vector<float>& values) {
    const std::vector<uint8_t> planes = Noise(in, 9);
    resizer.Start({.in = in, .out = out}, table, values);
    const size_t plane = size_t{in.width} * in.height;
    for (uint32_t y = 0; y < in.height; ++y) {
      const uint8_t* const row = planes.data() + size_t{y} * in.width;
      resizer.Take({{row, row + plane, row + 2 * plane}, in.width});
    }
  };
  run(small, first);
  run(large, again);
  run(small, again);
  EXPECT_EQ(first, again);
}

}  // namespace
}  // namespace evenkeel::preprocess
