// Pillow's antialiased resize of RGB8 images, bit for bit (its Resample.c): weights in fixed point of 22
// bits, rows first, then columns, bytes between the passes.
//
// The weights are polynomials of doubles, so nothing depends on a maths library; the sums are of integers, so
// the vector paths give the same bytes as the portable one.
//
// Thread safety: free functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/resize.h"

namespace evenkeel {

// The weights of one axis: output i sums `count[i]` inputs from `first[i]` with weights[i * taps ...].
struct AxisWeights {
  uint32_t taps = 0;
  std::vector<uint32_t> first;
  std::vector<uint32_t> count;
  std::vector<int32_t> weights;
};
AxisWeights WeightsOf(uint32_t in, uint32_t out, ResizeFilter filter);

// `in` and `out` are [height, width, 3]; both sizes at least 1x1. Sides where in equals out are not filtered.
void ResizePil(std::span<const uint8_t> in, ImageSize in_size, ResizeFilter filter, std::span<uint8_t> out,
               ImageSize out_size);

enum class ResizePath : uint8_t { kBest, kPortable };
// For tests: as ResizePil on the path that every CPU has.
void ResizePilOn(ResizePath path, std::span<const uint8_t> in, ImageSize in_size, ResizeFilter filter,
                 std::span<uint8_t> out, ImageSize out_size);

}  // namespace evenkeel
