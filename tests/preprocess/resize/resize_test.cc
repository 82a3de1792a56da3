#include "preprocess/resize/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "preprocess/resize/row_resizer.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/noise.h"

namespace evenkeel::preprocess {
namespace {

using Rgb = std::vector<uint8_t>;

Rgb GoldenRgb(const std::string& name) {
  Bytes bytes = Golden(name);
  Rgb rgb(bytes.size());
  std::memcpy(rgb.data(), bytes.data(), bytes.size());
  return rgb;
}

Rgb Noise(Dice& dice, ImageSize size) { return SharpNoise(dice, size.rgb_bytes()); }

ImageSize AnySize(Dice& dice, uint64_t most) {
  return {1 + static_cast<uint32_t>(dice.Roll(most)), 1 + static_cast<uint32_t>(dice.Roll(most))};
}

// The plan's rows, fed in bands of changing heights, interleaved or as planes.
Rgb Streamed(ResizePath path, const ResizePlan& plan, const Rgb& in, Dice& dice, bool as_planes = false) {
  const ImageSize window = plan.window == ImageSize{} ? plan.out : plan.window;
  Rgb out(window.rgb_bytes(), 0xa5);
  InterleavedRows rows(out);
  RowResizer resizer(path);
  resizer.Start(plan, &rows);
  const uint32_t width = plan.in.width;
  const size_t stride = size_t{3} * width, plane = size_t{width} * plan.in.height;
  Rgb planes;
  if (as_planes) {
    planes.resize(in.size());
    for (size_t i = 0; i < in.size(); ++i) planes[i % 3 * plane + i / 3] = in[i];
  }
  for (uint32_t y = 0; y < plan.in.height;) {
    const uint32_t most = dice.Roll(2) == 0 ? 20 : kBandRows;
    const uint32_t count =
        std::min(most == 20 ? 1 + static_cast<uint32_t>(dice.Roll(most)) : most, plan.in.height - y);
    if (as_planes) {
      const uint8_t* row = planes.data() + size_t{width} * y;
      resizer.Feed(PixelBand{{row, row + plane, row + 2 * plane}, width, count, 1});
    } else {
      resizer.Feed(InterleavedBand(in.data() + stride * y, stride, count));
    }
    y += count;
  }
  return out;
}

constexpr Resampler kResamplers[] = {Resampler::kPil, Resampler::kPil13, Resampler::kAtenU8};
constexpr ResizeFilter kFilters[] = {ResizeFilter::kBilinear, ResizeFilter::kBicubic, ResizeFilter::kLanczos,
                                     ResizeFilter::kNearest,  ResizeFilter::kBox,     ResizeFilter::kHamming};

// tests/golden/make_image_goldens.py and make_aten_goldens.py wrote these with the libraries themselves.
TEST(Resize, EqualsTheOriginalsBytes) {
  const Rgb scene = GoldenRgb("images/scene.rgb");
  const ImageSize size{41, 29};
  for (auto [prefix, resampler, filter] : {
           std::tuple{"resize-bicubic", Resampler::kPil, ResizeFilter::kBicubic},
           std::tuple{"resize-bilinear", Resampler::kPil, ResizeFilter::kBilinear},
           std::tuple{"resize-lanczos", Resampler::kPil, ResizeFilter::kLanczos},
           std::tuple{"aten-bicubic", Resampler::kAtenU8, ResizeFilter::kBicubic},
           std::tuple{"aten-bilinear", Resampler::kAtenU8, ResizeFilter::kBilinear},
           std::tuple{"aten-lanczos", Resampler::kAtenU8, ResizeFilter::kLanczos},
       }) {
    for (ImageSize out : {ImageSize{28, 28}, {84, 56}, {41, 20}, {19, 29}, {1, 1}, {211, 5}, {41, 29}}) {
      std::string golden = std::string("images/") + prefix + "-" + std::to_string(out.width) + "x" +
                           std::to_string(out.height) + ".rgb";
      Rgb resized(out.rgb_bytes());
      Resize(resampler, filter, scene, size, resized, out);
      EXPECT_EQ(resized, GoldenRgb(golden)) << golden;
    }
  }
}

TEST(Resize, Pillow13FiltersColumnsFirstIfMuchMoreHeightIsLost) {
  const Rgb scene = GoldenRgb("images/scene.rgb");
  const ImageSize size{41, 29}, wide{211, 5};
  Rgb resized(wide.rgb_bytes());
  Resize(Resampler::kPil13, ResizeFilter::kBicubic, scene, size, resized, wide);
  EXPECT_EQ(resized, GoldenRgb("images/pil13-bicubic-211x5.rgb"));
  EXPECT_NE(resized, GoldenRgb("images/resize-bicubic-211x5.rgb"));
  const ImageSize small{28, 28};
  Rgb same(small.rgb_bytes());
  Resize(Resampler::kPil13, ResizeFilter::kBicubic, scene, size, same, small);
  EXPECT_EQ(same, GoldenRgb("images/resize-bicubic-28x28.rgb"));
}

// One pass of the definition along an axis; `line(i)` is where its output or input pixel i lies.
Rgb PlainPass(const Rgb& in, uint32_t lines, const Axis& axis, bool along_rows) {
  AxisWeights weights;
  MakeAxisWeights(axis, WeightForm::kBytes, &weights);
  Rgb out(size_t{3} * lines * axis.out);
  for (uint32_t line = 0; line < lines; ++line) {
    for (uint32_t i = 0; i < axis.out * 3; ++i) {
      int64_t sum = weights.half;
      for (uint32_t k = 0; k < 4 * weights.num_groups[i / 3]; ++k) {
        const size_t at = 4 * weights.first_group[i / 3] + k;
        if (at >= axis.in) continue;
        const size_t pixel = along_rows ? size_t{line} * axis.in + at : at * lines + line;
        sum += int64_t{in[pixel * 3 + i % 3]} * weights.values_of(i / 3)[k];
      }
      const size_t pixel = along_rows ? size_t{line} * axis.out + i / 3 : size_t{i / 3} * lines + line;
      out[pixel * 3 + i % 3] = static_cast<uint8_t>(std::clamp<int64_t>(sum >> weights.shift, 0, 255));
    }
  }
  return out;
}

// The definition: sums of 64 bits, rows before columns, no filter between equal sides.
Rgb Plain(const ResizePlan& plan, Rgb rgb) {
  const ImageSize in = plan.in, out = plan.out;
  auto axis = [&](uint32_t from, uint32_t to) {
    return Axis{from, to, 0, to, static_cast<double>(from), plan.filter, plan.resampler};
  };
  if (in.width != out.width) rgb = PlainPass(rgb, in.height, axis(in.width, out.width), true);
  if (in.height != out.height) rgb = PlainPass(rgb, out.width, axis(in.height, out.height), false);
  return rgb;
}

TEST(Resize, EveryPathAndEveryBandGiveTheBytesOfTheDefinition) {
  Dice dice(11);
  for (int round = 0; round < 60; ++round) {
    ResizePlan plan{.in = AnySize(dice, 150), .out = AnySize(dice, 110)};
    if (round % 4 == 0)
      plan.in.width = 200 + static_cast<uint32_t>(dice.Roll(800));  // several turns of a ring
    if (round % 7 == 0) plan.out.width = plan.in.width;
    if (round % 9 == 0) plan.out.height = plan.in.height;
    plan.filter = kFilters[round % std::size(kFilters)];
    plan.resampler = round % 2 == 0 ? Resampler::kPil : Resampler::kAtenU8;
    const Rgb in = Noise(dice, plan.in);
    const Rgb expected = Plain(plan, in);
    for (ResizePath path : {ResizePath::kBest, ResizePath::kAvx2, ResizePath::kPortable}) {
      for (bool as_planes : {false, true}) {
        ASSERT_EQ(Streamed(path, plan, in, dice, as_planes), expected)
            << plan.in.width << "x" << plan.in.height << " -> " << plan.out.width << "x" << plan.out.height;
      }
    }
  }
}

TEST(Resize, EveryPathSplitsAndJoinsPlanesAlike) {
  Dice dice(3);
  for (uint32_t width : {1u, 2u, 15u, 16u, 17u, 31u, 48u, 100u, 333u}) {
    const Rgb rgb = Noise(dice, {width, 1});
    Rgb expected(rgb.size());
    for (size_t i = 0; i < rgb.size(); ++i) expected[i % 3 * width + i / 3] = rgb[i];
    for (ResizePath path : {ResizePath::kBest, ResizePath::kAvx2, ResizePath::kPortable}) {
      Rgb planes(rgb.size()), joined(rgb.size());
      ResizeKernelsOf(path).split_planes(rgb.data(), width, planes.data());
      EXPECT_EQ(planes, expected) << width;
      const uint8_t* plane[] = {planes.data(), planes.data() + width, planes.data() + size_t{2} * width};
      ResizeKernelsOf(path).join_planes(plane, width, joined.data());
      EXPECT_EQ(joined, rgb) << width;
    }
  }
}

TEST(Resize, AWindowIsThatPartOfTheWhole) {
  Dice dice(5);
  for (int round = 0; round < 60; ++round) {
    ResizePlan plan{.in = AnySize(dice, 80), .out = AnySize(dice, 80)};
    if (round % 5 == 0) plan.out.width = plan.in.width;
    if (round % 7 == 0) plan.out.height = plan.in.height;
    plan.resampler = kResamplers[round % 3];
    const bool as_planes = round % 2 == 0;
    const Rgb in = Noise(dice, plan.in);
    const Rgb whole = Streamed(ResizePath::kBest, plan, in, dice);
    plan.left = static_cast<uint32_t>(dice.Roll(plan.out.width));
    plan.top = static_cast<uint32_t>(dice.Roll(plan.out.height));
    plan.window = {1 + static_cast<uint32_t>(dice.Roll(plan.out.width - plan.left)),
                   1 + static_cast<uint32_t>(dice.Roll(plan.out.height - plan.top))};
    const Rgb part = Streamed(ResizePath::kBest, plan, in, dice, as_planes);
    for (uint32_t y = 0; y < plan.window.height; ++y) {
      const auto row = whole.begin() + (size_t{plan.top + y} * plan.out.width + plan.left) * 3;
      ASSERT_TRUE(std::equal(row, row + size_t{3} * plan.window.width,
                             part.begin() + size_t{y} * plan.window.width * 3))
          << "round " << round << " row " << y;
    }
  }
}

// Digit `d` of an input's weight: `bits` wide, signed, at its place in the lane.
int32_t DigitOf(const AxisWeights& axis, uint32_t output, uint32_t input, uint32_t d, uint32_t bits) {
  const auto lane = static_cast<uint32_t>(axis.packed_of(output)[input / axis.group * axis.digits + d]);
  return static_cast<int32_t>(lane << (32 - bits * (input % axis.group + 1))) >> (32 - bits);
}

// What the vector instructions make of lanes: the sum of a weight's digits, each at its place.
int32_t FromLanes(WeightForm form, const AxisWeights& axis, uint32_t output, uint32_t input) {
  if (form == WeightForm::kWords) {
    const int32_t lower = DigitOf(axis, output, input, axis.digits - 1, 16);
    return axis.digits == 1 ? lower : DigitOf(axis, output, input, 0, 8) * 0x10000 + lower;
  }
  int32_t weight = 0;
  for (uint32_t d = 0; d < axis.digits; ++d) weight = weight * 0x100 + DigitOf(axis, output, input, d, 8);
  return weight;
}

constexpr std::pair<uint32_t, uint32_t> kAxes[] = {{100, 7},  {7, 100},   {5000, 28}, {1, 9},
                                                   {9000, 7}, {641, 640}, {2, 501},   {400, 201}};

TEST(Resize, WeightsOfAnOutputSumToOne) {
  for (auto [in, out] : kAxes) {
    for (Resampler resampler : {Resampler::kPil, Resampler::kAtenU8}) {
      for (ResizeFilter filter : kFilters) {
        AxisWeights axis;
        MakeAxisWeights({in, out, 0, out, static_cast<double>(in), filter, resampler}, WeightForm::kBytes,
                        &axis);
        for (uint32_t i = 0; i < out; ++i) {
          const uint32_t inputs = axis.group * axis.num_groups[i];
          int64_t sum = 0;
          for (uint32_t k = 0; k < inputs; ++k) sum += axis.values_of(i)[k];
          EXPECT_LE(std::abs(sum - (int64_t{1} << axis.shift)), int64_t{inputs});
          EXPECT_LT(axis.group * (axis.first_group[i] + axis.num_groups[i]), in + axis.group);
        }
      }
    }
  }
}

TEST(Resize, DigitsOfEveryFormAreTheWeight) {
  for (auto [in, out] : kAxes) {
    for (Resampler resampler : {Resampler::kPil, Resampler::kAtenU8}) {
      for (ResizeFilter filter : kFilters) {
        for (WeightForm form : {WeightForm::kWords, WeightForm::kBytes}) {
          AxisWeights axis;
          MakeAxisWeights({in, out, 0, out, static_cast<double>(in), filter, resampler}, form, &axis);
          for (uint32_t i = 0; i < out; ++i) {
            for (uint32_t k = 0; k < axis.group * axis.num_groups[i]; ++k) {
              ASSERT_EQ(FromLanes(form, axis, i, k), axis.values_of(i)[k]) << in << " -> " << out;
            }
          }
        }
      }
    }
  }
}

// The instruction that multiplies bytes adds the products of two inputs in 16 bits, and saturates.
TEST(Resize, UpperDigitsOfTwoWeightsTimesTheLargestBytesFitIn16Bits) {
  for (auto [in, out] : kAxes) {
    for (ResizeFilter filter : kFilters) {
      AxisWeights axis;
      MakeAxisWeights({in, out, 0, out, static_cast<double>(in), filter, Resampler::kPil}, WeightForm::kWords,
                      &axis);
      if (axis.digits != 2) continue;
      for (uint32_t i = 0; i < out; ++i) {
        for (uint32_t k = 0; k < 2 * axis.num_groups[i]; k += 2) {
          const int32_t a = DigitOf(axis, i, k, 0, 8), b = DigitOf(axis, i, k + 1, 0, 8);
          EXPECT_LE(255 * (std::max(a, 0) + std::max(b, 0)), 0x7fff) << in << " -> " << out;
          EXPECT_GE(255 * (std::min(a, 0) + std::min(b, 0)), -0x8000) << in << " -> " << out;
          const auto lane = static_cast<uint32_t>(axis.packed_of(i)[k / 2 * axis.digits]);
          EXPECT_EQ(lane & 0xffff, lane >> 16) << in << " -> " << out;
        }
      }
    }
  }
}

// The weight of `input` for output `i` of a block of `windows`: the sum of its digits, each at its place.
int32_t WeightInWindows(const AxisWeights& axis, uint32_t windows, const WindowWeights::Block& block,
                        uint32_t i, uint32_t input) {
  const uint32_t outputs = WindowWeights::kOutputs * windows, bits = 32 / axis.group;
  const uint8_t* order = &axis.windows.order[block.order];
  const int32_t* digits = &axis.windows.digits[block.digits];
  int32_t weight = 0;
  for (uint32_t group = 0; group < block.groups; ++group) {
    for (uint32_t k = 0; k < axis.group; ++k) {
      const uint8_t* byte = order + 4 * (outputs * group + i) + 4 / axis.group * k;
      for (uint32_t upper = 1; upper < 4 / axis.group; ++upper) EXPECT_EQ(byte[upper], 0x80);
      if (*byte == 0x80 || block.window[i / WindowWeights::kOutputs] + *byte != input) continue;
      for (uint32_t d = 0; d < axis.digits; ++d) {
        const auto lane = static_cast<uint32_t>(digits[outputs * (axis.digits * group + d) + i]);
        weight = (weight << bits) + (static_cast<int32_t>(lane << (32 - bits * (k + 1))) >> (32 - bits));
      }
    }
  }
  return weight;
}

void ExpectWindowsToHoldTheWeights(const AxisWeights& axis, uint32_t windows) {
  uint32_t next = 0;  // the first output that no block has made
  for (const WindowWeights::Block& block : axis.windows.blocks) {
    ASSERT_LE(block.output, next);
    next = block.output + WindowWeights::kOutputs * windows;
    for (uint32_t w = 0; w < windows; ++w) ASSERT_LE(block.window[w] + WindowWeights::kInputs, axis.in);
    for (uint32_t output = block.output; output < std::min(next, axis.outputs()); ++output) {
      const uint32_t first = axis.group * axis.first_group[output];
      for (uint32_t k = 0; k < axis.group * axis.num_groups[output]; ++k) {
        ASSERT_EQ(WeightInWindows(axis, windows, block, output - block.output, first + k),
                  axis.values_of(output)[k])
            << "output " << output;
      }
    }
  }
  EXPECT_EQ(next, (axis.outputs() + 3) / 4 * 4);
}

// As AVX2 and AVX-512 take them.
constexpr std::pair<WeightForm, uint32_t> kWindowForms[] = {{WeightForm::kWords, 2}, {WeightForm::kBytes, 4}};

TEST(Resize, WindowsHoldTheWeightsOfEveryOutput) {
  for (auto [in, out] : {std::pair{640u, 631u},
                         {640u, 640u},
                         {300u, 1000u},
                         {640u, 480u},
                         {17u, 16u},
                         {853u, 500u},
                         {1000u, 501u},
                         {31u, 17u},
                         {100u, 99u}}) {
    for (Resampler resampler : {Resampler::kPil, Resampler::kAtenU8}) {
      for (ResizeFilter filter : {ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
        for (auto [form, windows] : kWindowForms) {
          SCOPED_TRACE(std::to_string(in) + " -> " + std::to_string(out) + ", " + std::to_string(windows));
          AxisWeights axis;
          MakeAxisWeights({in, out, 0, out, static_cast<double>(in), filter, resampler}, form, &axis);
          MakeWindowWeights(axis, windows, &axis.windows);
          ExpectWindowsToHoldTheWeights(axis, windows);
        }
      }
    }
  }
}

TEST(Resize, ThereAreNoWindowsWhereTheyDoNotHoldWhatTheirOutputsNeed) {
  for (auto [in, out] : {std::pair{640u, 160u}, {15u, 15u}, {15u, 40u}, {40u, 4u}, {640u, 4u}}) {
    for (auto [form, windows] : kWindowForms) {
      AxisWeights axis;
      MakeAxisWeights({in, out, 0, out, static_cast<double>(in), ResizeFilter::kBicubic, Resampler::kPil},
                      form, &axis);
      MakeWindowWeights(axis, windows, &axis.windows);
      EXPECT_TRUE(axis.windows.blocks.empty()) << in << " -> " << out;
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
