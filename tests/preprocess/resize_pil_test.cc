#include "preprocess/resize_pil.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/preprocess/files.h"

namespace evenkeel {
namespace {

std::vector<uint8_t> GoldenRgb(const std::string& name) {
  Bytes bytes = Golden(name);
  std::vector<uint8_t> rgb(bytes.size());
  std::memcpy(rgb.data(), bytes.data(), bytes.size());
  return rgb;
}

TEST(ResizePil, EqualsPillowsBytes) {
  const std::vector<uint8_t> scene = GoldenRgb("images/scene.rgb");
  const ImageSize size{41, 29};
  for (auto [name, filter] :
       {std::pair{"bicubic", ResizeFilter::kBicubic}, std::pair{"bilinear", ResizeFilter::kBilinear}}) {
    for (ImageSize out : {ImageSize{28, 28}, {84, 56}, {41, 20}, {19, 29}, {1, 1}, {211, 5}, {41, 29}}) {
      std::string golden = std::string("images/resize-") + name + "-" + std::to_string(out.width) + "x" +
                           std::to_string(out.height) + ".rgb";
      std::vector<uint8_t> resized(out.rgb_bytes());
      ResizePil(scene, size, filter, resized, out);
      EXPECT_EQ(resized, GoldenRgb(golden)) << golden;
    }
  }
}

TEST(ResizePil, EveryPathGivesTheSameBytes) {
  Dice dice(3);
  for (int round = 0; round < 60; ++round) {
    ImageSize in{1 + static_cast<uint32_t>(dice.Roll(90)), 1 + static_cast<uint32_t>(dice.Roll(90))};
    ImageSize out{1 + static_cast<uint32_t>(dice.Roll(120)), 1 + static_cast<uint32_t>(dice.Roll(120))};
    std::vector<uint8_t> rgb(in.rgb_bytes());
    for (uint8_t& value : rgb)
      value = static_cast<uint8_t>(dice.Roll(3) == 0 ? dice.Roll(256) : dice.Roll(2) * 255);
    std::vector<uint8_t> best(out.rgb_bytes()), portable(out.rgb_bytes());
    ResizePilOn(ResizePath::kBest, rgb, in, ResizeFilter::kBicubic, best, out);
    ResizePilOn(ResizePath::kPortable, rgb, in, ResizeFilter::kBicubic, portable, out);
    ASSERT_EQ(best, portable) << in.width << "x" << in.height << " -> " << out.width << "x" << out.height;
  }
}

// The definition, without vectors and without clipping between equal sides.
std::vector<uint8_t> Plain(const std::vector<uint8_t>& in, ImageSize in_size, ImageSize out_size) {
  AxisWeights columns = WeightsOf(in_size.width, out_size.width, ResizeFilter::kBicubic);
  AxisWeights rows = WeightsOf(in_size.height, out_size.height, ResizeFilter::kBicubic);
  auto clip = [](int64_t sum) {
    return static_cast<uint8_t>(std::min<int64_t>(255, std::max<int64_t>(0, sum >> 22)));
  };
  std::vector<uint8_t> between(size_t{3} * out_size.width * in_size.height), out(out_size.rgb_bytes());
  for (uint32_t y = 0; y < in_size.height; ++y) {
    for (uint32_t x = 0; x < out_size.width * 3; ++x) {
      int64_t sum = 1 << 21;
      for (uint32_t k = 0; k < columns.count[x / 3]; ++k) {
        sum += int64_t{in[(size_t{y} * in_size.width + columns.first[x / 3] + k) * 3 + x % 3]} *
               columns.weights[x / 3 * columns.taps + k];
      }
      between[size_t{y} * out_size.width * 3 + x] = clip(sum);
    }
  }
  for (uint32_t y = 0; y < out_size.height; ++y) {
    for (uint32_t x = 0; x < out_size.width * 3; ++x) {
      int64_t sum = 1 << 21;
      for (uint32_t k = 0; k < rows.count[y]; ++k) {
        sum += int64_t{between[(size_t{rows.first[y]} + k) * out_size.width * 3 + x]} *
               rows.weights[y * rows.taps + k];
      }
      out[size_t{y} * out_size.width * 3 + x] = clip(sum);
    }
  }
  return out;
}

TEST(ResizePil, EqualsTheDefinition) {
  Dice dice(11);
  for (int round = 0; round < 40; ++round) {
    ImageSize in{2 + static_cast<uint32_t>(dice.Roll(150)), 2 + static_cast<uint32_t>(dice.Roll(60))};
    ImageSize out{in.width / 2 + 2, in.height + 3};
    if (out.width == in.width) ++out.width;
    std::vector<uint8_t> rgb(in.rgb_bytes());
    for (uint8_t& value : rgb) value = static_cast<uint8_t>(dice.Roll(256));
    std::vector<uint8_t> resized(out.rgb_bytes());
    ResizePil(rgb, in, ResizeFilter::kBicubic, resized, out);
    ASSERT_EQ(resized, Plain(rgb, in, out)) << in.width << "x" << in.height;
  }
}

TEST(ResizePil, WeightsOfAnOutputSumToOne) {
  for (auto [in, out] : {std::pair{100u, 7u}, {7u, 100u}, {5000u, 28u}, {1u, 9u}}) {
    AxisWeights axis = WeightsOf(in, out, ResizeFilter::kBicubic);
    for (uint32_t i = 0; i < out; ++i) {
      int64_t sum = 0;
      for (uint32_t k = 0; k < axis.count[i]; ++k) sum += axis.weights[size_t{i} * axis.taps + k];
      EXPECT_LE(std::abs(sum - (1 << 22)), static_cast<int64_t>(axis.count[i]));
      EXPECT_LE(axis.first[i] + axis.count[i], in);
    }
  }
}

}  // namespace
}  // namespace evenkeel
