// The interpolator of floats against what torch 2.15 makes of the same bytes on a CPU:
//     torch.nn.functional.interpolate(values, size, mode=mode, antialias=False, align_corners=False)
#include "preprocess/resize/interpolator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace evenkeel::preprocess {
namespace {

std::vector<float> ScaledTable() {
  std::vector<float> table(3 * 256);
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>(i % 256) * static_cast<float>(1 / 255.0);
  }
  return table;
}

std::vector<uint8_t> NoisePlanes(ImageSize size) {
  std::vector<uint8_t> planes(size.rgb_bytes());
  uint64_t state = uint64_t{size.width} * 2 + 1;
  for (uint8_t& byte : planes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return planes;
}

// As `mix` of tests/golden/make_family_goldens.py.
std::string HashOf(const std::vector<float>& values) {
  uint64_t sum = 0, place = 0;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    place += 0x9E3779B97F4A7C15;
    sum += (bits + place) * (place | 1);
  }
  return absl::StrFormat("%016x", sum);
}

std::vector<float> Interpolated(Interpolator& interpolator, ImageSize in, ImageSize out,
                                ResizeFilter filter) {
  const std::vector<float> table = ScaledTable();
  const std::vector<uint8_t> planes = NoisePlanes(in);
  std::vector<float> values(out.rgb_bytes(), -1);
  interpolator.Start({.in = in, .out = out, .filter = filter}, table, values);
  const size_t plane = size_t{in.width} * in.height;
  for (uint32_t y = 0; y < in.height; ++y) {
    const uint8_t* const row = planes.data() + size_t{y} * in.width;
    interpolator.Take({{row, row + plane, row + 2 * plane}, in.width});
  }
  return values;
}

struct TorchCase {
  ImageSize in, out;
  const char* hashes[2];  // bilinear, bicubic
};

TEST(Interpolator, ValuesAreTorchsBitForBit) {
  const TorchCase cases[] = {
      {{61, 47}, {100, 90}, {"006172e0de9cca5c", "91169459e535429a"}},
      {{300, 211}, {70, 64}, {"2a3175795b6a5877", "520b5b8f10a0bb95"}},
      {{7, 5}, {120, 31}, {"a7948bb29908d297", "4eaab0d4ae539b77"}},
      {{64, 200}, {64, 100}, {"f13d270a542bd1be", "65cb7d3687fb3f08"}},
  };
  Interpolator interpolator;  // one, so that nothing of a picture is kept for the next
  for (const TorchCase& example : cases) {
    SCOPED_TRACE(absl::StrFormat("%ux%u", example.in.width, example.in.height));
    EXPECT_EQ(HashOf(Interpolated(interpolator, example.in, example.out, ResizeFilter::kBilinear)),
              example.hashes[0]);
    EXPECT_EQ(HashOf(Interpolated(interpolator, example.in, example.out, ResizeFilter::kBicubic)),
              example.hashes[1]);
  }
}

TEST(Interpolator, KeepsAPictureOfTheSameSizeBitForBit) {
  const ImageSize size{37, 23};
  const std::vector<uint8_t> planes = NoisePlanes(size);
  const std::vector<float> table = ScaledTable();
  Interpolator interpolator;
  for (const ResizeFilter filter : {ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
    const std::vector<float> values = Interpolated(interpolator, size, size, filter);
    for (size_t i = 0; i < planes.size(); ++i) ASSERT_EQ(values[i], table[planes[i]]) << i;
  }
}

TEST(Interpolator, AReductionByAWholeOddNumberPicksPixels) {
  const ImageSize in{5 * 9, 3 * 7}, out{9, 7};
  const std::vector<uint8_t> planes = NoisePlanes(in);
  const std::vector<float> table = ScaledTable();
  Interpolator interpolator;
  for (const ResizeFilter filter : {ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
    const std::vector<float> values = Interpolated(interpolator, in, out, filter);
    for (uint32_t y = 0; y < out.height; ++y) {
      for (uint32_t x = 0; x < out.width; ++x) {
        ASSERT_EQ(values[y * out.width + x], table[planes[(3 * y + 1) * in.width + 5 * x + 2]]);
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
