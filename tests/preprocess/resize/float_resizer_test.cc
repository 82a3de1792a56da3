// The resizer of floats against its definition, written the long way. What torch makes of pictures is in the goldens of
// DINOv3 (tests/golden/families.json).
#include "preprocess/resize/float_resizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
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
std::vector<float> Resized(const std::vector<uint8_t>& planes, ImageSize in, ImageSize out,
                           ResizeFilter filter = ResizeFilter::kBilinear) {
  const std::array<float, 256> table = Scaled();
  std::vector<float> values(out.rgb_bytes(), -1);
  FloatResizer resizer;
  resizer.Start({.in = in, .out = out, .filter = filter}, table, values);
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

// The triangle, and Keys' cubic with a = -1/2.
double Weight(ResizeFilter filter, double x) {
  if (filter == ResizeFilter::kBilinear) return std::max(0.0, 1 - x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

// One place of an axis in double precision, by the widened filter of torch.
double Sum(const std::vector<double>& in, uint32_t out, uint32_t i, ResizeFilter filter) {
  const double scale = static_cast<double>(in.size()) / out, widened = std::max(scale, 1.0);
  const double center = scale * (i + 0.5);
  double sum = 0, total = 0;
  for (size_t j = 0; j < in.size(); ++j) {
    const double weight = Weight(filter, std::abs((static_cast<double>(j) + 0.5 - center) / widened));
    sum += weight * in[j], total += weight;
  }
  return sum / total;
}

void ExpectTheDefinition(ResizeFilter filter) {
  const ImageSize sizes[][2] = {{{41, 29}, {56, 84}}, {{300, 200}, {64, 48}}, {{1, 7}, {5, 3}},
                                {{90, 1}, {16, 16}},  {{64, 64}, {64, 64}},   {{33, 100}, {100, 33}}};
  for (const auto& [in, out] : sizes) {
    const std::vector<uint8_t> planes = Noise(in, in.width);
    const std::vector<float> values = Resized(planes, in, out, filter);
    std::vector<double> across(size_t{in.height} * out.width), row(in.width), column(in.height);
    for (size_t c = 0; c < 3; ++c) {
      for (uint32_t y = 0; y < in.height; ++y) {
        for (uint32_t x = 0; x < in.width; ++x) row[x] = planes[(c * in.height + y) * in.width + x] / 255.0;
        for (uint32_t x = 0; x < out.width; ++x) across[y * out.width + x] = Sum(row, out.width, x, filter);
      }
      for (uint32_t x = 0; x < out.width; ++x) {
        for (uint32_t y = 0; y < in.height; ++y) column[y] = across[y * out.width + x];
        for (uint32_t y = 0; y < out.height; ++y) {
          ASSERT_NEAR(values[(c * out.height + y) * out.width + x], Sum(column, out.height, y, filter), 2e-5)
              << in.width << "x" << in.height << " " << c << " " << y << " " << x;
        }
      }
    }
  }
}

TEST(FloatResizer, IsNearTheDefinitionInDoublePrecision) {
  ExpectTheDefinition(ResizeFilter::kBilinear);
  ExpectTheDefinition(ResizeFilter::kBicubic);
}

TEST(FloatResizer, KeepsAPictureOfTheSameSizeBitForBit) {
  const ImageSize size{37, 23};
  const std::vector<uint8_t> planes = Noise(size, 4);
  const std::array<float, 256> table = Scaled();
  for (const ResizeFilter filter : {ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
    const std::vector<float> values = Resized(planes, size, size, filter);
    for (size_t i = 0; i < planes.size(); ++i) ASSERT_EQ(values[i], table[planes[i]]) << i;
  }
}

TEST(FloatResizer, RoundsHalvesToEvenBytesWithinBounds) {
  const float values[] = {-3, -0.5, 0.5, 0.50001f, 1.5, 2.5, 100.49999f, 254.5, 255.49, 300};
  const uint8_t wanted[] = {0, 0, 0, 1, 2, 2, 100, 254, 255, 255};
  uint8_t bytes[std::size(values)];
  RoundToBytes(values, bytes);
  EXPECT_TRUE(std::equal(std::begin(bytes), std::end(bytes), wanted));
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
