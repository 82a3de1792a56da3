// The weights with which one axis of a picture is resized, in the fixed point of the chosen resampler.
//
// Sources: Pillow's Resample.c (precompute_coeffs, normalize_coeffs_8bpc) and ATen's UpSampleKernel.cpp
// (_compute_index_ranges_int16_weights). Both sum from `half`, shift by `shift` and clip to a byte; Pillow's
// weights have 22 bits of fraction, ATen's are of 16 bits with as many bits of fraction as the largest of the
// axis allows. Weights are of doubles without a maths library, so they are the same on every machine.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "preprocess/resize.h"

namespace evenkeel {

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

// Inputs are taken in pairs, (0, 1), (2, 3) and so on, as the vector instructions multiply them. A weight
// that does not fit into 16 bits is high * 2^15 + low.
struct AxisWeights {
  static constexpr int kLowBits = 15;

  uint32_t in = 0;
  uint32_t pairs_per_output = 0;     // the most of any output; the stride of `high` and `low`
  std::vector<uint32_t> first_pair;  // of each output
  std::vector<uint32_t> num_pairs;
  std::vector<int32_t> high;  // two of 16 bits: of the even input in the lower half
  std::vector<int32_t> low;   // likewise, from 0 to 2^15 - 1; empty where `high` is all
  int32_t half = 0;
  int shift = 0;

  uint32_t outputs() const { return static_cast<uint32_t>(first_pair.size()); }
  bool split() const { return !low.empty(); }
  int32_t weight(uint32_t output, uint32_t tap) const;  // tap 0 is the input 2 * first_pair
};

// Fills `weights`, whose memory is reused.
void MakeAxisWeights(const Axis& axis, AxisWeights* weights);

}  // namespace evenkeel
