// The weights for resizing one axis of a picture, in the fixed point of the chosen resampler.
//
// Sources: Pillow's Resample.c (precompute_coeffs, normalize_coeffs_8bpc) and ATen's UpSampleKernel.cpp
// Both sum from `half`, shift by `shift` and clip to a byte. Pillow's weights have 22 fraction bits. ATen's
// weights have 16 bits, with as many fraction bits as the largest weight of the axis allows. The exact
// weights are computed in doubles without a maths library, so they are the same on every machine.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/resize/resize.h"
#include "preprocess/resize/window_weights.h"

namespace evenkeel::preprocess {

// Output pixels [begin, begin + count) of `out` pixels, resized from `in` input pixels.
struct Axis {
  uint32_t in = 0;
  uint32_t out = 0;
  uint32_t begin = 0;
  uint32_t count = 0;
  // Input pixels that the output covers: `in`, or a little less if a scaled decode rounded up.
  double extent = 0;
  ResizeFilter filter = ResizeFilter::kBicubic;
  Resampler resampler = Resampler::kPil;

  friend bool operator==(const Axis&, const Axis&) = default;
};

// The layout of inputs and weights in vector instructions: a lane of 32 bits holds a group of neighbouring
// inputs, and a weight is a sum of digits. Groups begin at multiples of their size.
enum class WeightForm : uint8_t {
  kWords,  // two inputs of 16 bits; digits: w as 16 bits, or before its lowest 16 bits, both signed, the rest
           // as 8 bits, twice: |255 * rest| of two inputs fit 16 bits
  kBytes,  // four inputs of 8 bits; digits of 8 bits, signed, the highest first
};

constexpr uint32_t GroupOf(WeightForm form) { return form == WeightForm::kWords ? 2 : 4; }

struct AxisWeights {
  uint32_t in = 0;
  uint32_t group = 0;                 // inputs of a group
  uint32_t digits = 0;                // of a weight
  uint32_t groups_per_output = 0;     // the maximum over all outputs; weights beyond an output's own are 0
  std::vector<uint32_t> first_group;  // of each output
  std::vector<uint32_t> num_groups;
  std::vector<int32_t> values;  // [output][input of its groups], unpacked
  std::vector<int32_t> packed;  // [output][group][digit]: a lane, the first input in the lowest bits
  int32_t half = 0;
  int shift = 0;
  WindowWeights windows;  // empty unless MakeWindowWeights filled them

  uint32_t outputs() const { return static_cast<uint32_t>(first_group.size()); }
  // The weights of `group` * num_groups inputs from `group` * first_group on; 0 beyond `in`.
  const int32_t* values_of(uint32_t output) const {
    return values.data() + size_t{output} * groups_per_output * group;
  }
  const int32_t* packed_of(uint32_t output) const {
    return packed.data() + size_t{output} * groups_per_output * digits;
  }
};

// Fills `weights` and reuses its memory.
void MakeAxisWeights(const Axis& axis, WeightForm form, AxisWeights* weights);

}  // namespace evenkeel::preprocess
