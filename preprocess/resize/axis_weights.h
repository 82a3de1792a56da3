// The weights with which one axis of a picture is resized, in the fixed point of the chosen resampler.
//
// Sources: Pillow's Resample.c (precompute_coeffs, normalize_coeffs_8bpc) and ATen's UpSampleKernel.cpp
// (_compute_index_ranges_int16_weights). Both sum from `half`, shift by `shift` and clip to a byte; Pillow's
// weights have 22 bits of fraction, ATen's are of 16 bits with as many bits of fraction as the largest of the
// axis allows. Weights are of doubles without a maths library, so they are the same on every machine.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/resize/resize.h"
#include "preprocess/resize/window_weights.h"

namespace evenkeel::preprocess {

// Output pixels [begin, begin + count) of `out`, which `in` input pixels make.
struct Axis {
  uint32_t in = 0;
  uint32_t out = 0;
  uint32_t begin = 0;
  uint32_t count = 0;
  // Input pixels that the output covers: `in`, or a little less where a scaled decode rounded up.
  double extent = 0;
  ResizeFilter filter = ResizeFilter::kBicubic;
  Resampler resampler = Resampler::kPil;

  friend bool operator==(const Axis&, const Axis&) = default;
};

// How the vector instructions take inputs and weights: a lane of 32 bits holds a group of neighbouring
// inputs, and a weight is the sum of digits. Groups begin at multiples of their size.
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
  uint32_t groups_per_output = 0;     // the most of any output; weights beyond an output's own are 0
  std::vector<uint32_t> first_group;  // of each output
  std::vector<uint32_t> num_groups;
  std::vector<int32_t> values;  // [output][input of its groups], as they are
  std::vector<int32_t> packed;  // [output][group][digit]: a lane, the first input in the lowest bits
  int32_t half = 0;
  int shift = 0;
  WindowWeights windows;  // where MakeWindowWeights filled them

  uint32_t outputs() const { return static_cast<uint32_t>(first_group.size()); }
  // Of the input `group` * first_group and those after it, `group` * num_groups of them; 0 beyond `in`.
  const int32_t* values_of(uint32_t output) const {
    return values.data() + size_t{output} * groups_per_output * group;
  }
  const int32_t* packed_of(uint32_t output) const {
    return packed.data() + size_t{output} * groups_per_output * digits;
  }
};

// Fills `weights`, whose memory is reused.
void MakeAxisWeights(const Axis& axis, WeightForm form, AxisWeights* weights);

}  // namespace evenkeel::preprocess
