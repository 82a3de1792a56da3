// The emulated AVX-512 kernels, one by one, beside the portable ones. resize_test.cc runs whole pictures
// through them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu.h"
#include "preprocess/resize/axis_weights.h"
#include "preprocess/resize/resize_avx512.h"
#include "preprocess/resize/resize_kernels.h"
#include "tests/preprocess/noise.h"

namespace evenkeel::preprocess {
namespace {

constexpr Resampler kResamplers[] = {Resampler::kPil, Resampler::kAtenU8};
constexpr ResizeFilter kFilters[] = {ResizeFilter::kBilinear, ResizeFilter::kBicubic, ResizeFilter::kLanczos,
                                     ResizeFilter::kNearest,  ResizeFilter::kBox,     ResizeFilter::kHamming};
constexpr uint32_t kLaneRows = GroupOf(WeightForm::kBytes);
constexpr uint32_t kBandGroups = kBandRows / kLaneRows;

struct Case {
  Axis axis;
  AxisWeights weights;
  std::string name;
};

// From enlarging a few pixels to sums over thousands, of all outputs or of some.
std::vector<Case> AllCases() {
  Dice dice(1);
  std::vector<Case> cases;
  for (const auto& [in, out] : {std::pair{1u, 9u},
                                {2u, 150u},
                                {7u, 100u},
                                {100u, 7u},
                                {161u, 160u},
                                {300u, 290u},
                                {40u, 150u},
                                {333u, 200u},
                                {333u, 41u},
                                {400u, 201u},
                                {1030u, 5u},
                                {5000u, 28u}}) {
    for (Resampler resampler : kResamplers) {
      for (ResizeFilter filter : kFilters) {
        for (bool whole : {true, false}) {
          Case made{.axis = {in, out, 0, out, static_cast<double>(in), filter, resampler}};
          if (!whole) {
            made.axis.begin = static_cast<uint32_t>(dice.Roll(out));
            made.axis.count = 1 + static_cast<uint32_t>(dice.Roll(out - made.axis.begin));
          }
          MakeAxisWeights(made.axis, WeightForm::kBytes, &made.weights);
          MakeWindowWeights(made.weights, Avx512Kernels()->windows, &made.weights.windows);
          made.name = std::to_string(in) + " -> " + std::to_string(out) + ", from " +
                      std::to_string(made.axis.begin) + " as many as " + std::to_string(made.axis.count) +
                      ", filter " + std::to_string(static_cast<int>(filter)) + ", resampler " +
                      std::to_string(static_cast<int>(resampler));
          cases.push_back(std::move(made));
        }
      }
    }
  }
  return cases;
}

class EmulatedAvx512 : public testing::Test {
 protected:
  void SetUp() override {
    if (!MayUseAvx2()) GTEST_SKIP() << "the AVX-512 path takes some kernels of AVX2's, which cannot run here";
    ASSERT_NE(Avx512Kernels(), nullptr);
    ASSERT_EQ(&ResizeKernelsOf(ResizePath::kBest), Avx512Kernels());
  }

  const ResizeKernels& portable_ = ResizeKernelsOf(ResizePath::kPortable);
};

// What filter_band makes of a band: the rows that are there, of each plane.
std::vector<uint8_t> Filtered(const ResizeKernels& kernels, const PixelBand& band, const AxisWeights& axis) {
  const size_t columns = axis.outputs(), plane = (columns + 3) / 4 * 4;
  AlignedMemory memory;
  uint32_t* const lanes = memory.Get<uint32_t>(kBandGroups * InWholeBlocks(3 * plane));
  uint32_t* groups[kBandGroups];
  for (uint32_t i = 0; i < kBandGroups; ++i) groups[i] = lanes + i * InWholeBlocks(3 * plane);
  BandScratch scratch;
  kernels.filter_band(band, axis, scratch, plane, groups);
  std::vector<uint8_t> rows;
  for (uint32_t r = 0; r < band.rows; ++r) {
    for (size_t c = 0; c < 3; ++c) {
      for (size_t x = 0; x < columns; ++x) {
        const uint32_t lane = groups[r / kLaneRows][c * plane + x];
        rows.push_back(static_cast<uint8_t>(lane >> (8 * (r % kLaneRows))));
      }
    }
  }
  return rows;
}

TEST_F(EmulatedAvx512, FiltersRowsAsThePortableKernelDoes) {
  Dice dice(2);
  for (const Case& made : AllCases()) {
    const uint32_t width = made.axis.in;
    const std::vector<uint8_t> pixels = SharpNoise(dice, size_t{3} * width * kBandRows);
    const uint8_t* from = pixels.data();
    const size_t plane = size_t{width} * kBandRows;
    AxisWeights turned = made.weights;  // windows are for planes
    turned.windows = {};
    for (const uint32_t rows : {kBandRows, 1 + static_cast<uint32_t>(dice.Roll(kBandRows))}) {
      const PixelBand planes{{from, from + plane, from + 2 * plane}, width, rows, 1};
      ASSERT_EQ(Filtered(*Avx512Kernels(), planes, made.weights), Filtered(portable_, planes, made.weights))
          << made.name << ", " << rows << " rows of planes";
      const PixelBand interleaved = InterleavedBand(from, size_t{3} * width, rows);
      ASSERT_EQ(Filtered(*Avx512Kernels(), interleaved, turned), Filtered(portable_, interleaved, turned))
          << made.name << ", " << rows << " rows of pixels";
    }
  }
}

TEST_F(EmulatedAvx512, SumsColumnsAsThePortableKernelDoes) {
  Dice dice(3);
  for (const Case& made : AllCases()) {
    for (const size_t columns : {size_t{1}, kColumnBlock, kColumnBlock + 1 + dice.Roll(100)}) {
      const size_t whole = InWholeBlocks(columns), groups = (made.axis.in + kLaneRows - 1) / kLaneRows;
      const std::vector<uint8_t> bytes = SharpNoise(dice, groups * whole * sizeof(uint32_t));
      AlignedMemory memory;
      uint32_t* const lanes = memory.Get<uint32_t>(groups * whole);
      std::memcpy(lanes, bytes.data(), bytes.size());
      std::vector<const uint32_t*> wanted(groups);
      for (size_t i = 0; i < groups; ++i) wanted[i] = lanes + i * whole;
      for (uint32_t y = 0; y < made.weights.outputs(); ++y) {
        std::vector<uint8_t> expected(whole), summed(whole);
        const uint32_t* const* first = wanted.data() + made.weights.first_group[y];
        portable_.sum_groups(first, made.weights, y, columns, expected.data());
        Avx512Kernels()->sum_groups(first, made.weights, y, columns, summed.data());
        expected.resize(columns), summed.resize(columns);
        ASSERT_EQ(summed, expected) << made.name << ", row " << y << " of " << columns << " columns";
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
