// The inner loops of resizing, and the fastest ones that this CPU has. All give the same bytes: their sums
// are of integers, taken modulo 2^32, and the whole sum fits.
//
// The horizontal filter leaves its result as the vertical filter takes it: a row of lanes of 32 bits, each
// with one column of a group of source rows, as WeightForm has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/resize/axis_weights.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// Rows of lanes are whole blocks of as many; what lies beyond a row's columns is of no account.
inline constexpr size_t kColumnBlock = 64;
constexpr size_t InWholeBlocks(size_t columns) {
  return (columns + kColumnBlock - 1) / kColumnBlock * kColumnBlock;
}

// Memory that starts at a cache line, reused and grown without keeping what it held.
class AlignedMemory {
 public:
  template <typename T>
  T* Get(size_t count) {
    const size_t size = count * sizeof(T) + kLine;
    if (bytes_.size() < size) bytes_.resize(size);
    return reinterpret_cast<T*>(bytes_.data() + (-reinterpret_cast<uintptr_t>(bytes_.data()) % kLine));
  }

 private:
  static constexpr size_t kLine = 64;
  std::vector<uint8_t> bytes_;
};

// Memory of filter_band, reused from band to band.
struct BandScratch {
  AlignedMemory groups;
};

struct ResizeKernels {
  WeightForm form;
  uint32_t windows;  // of a block of WindowWeights that filter_band takes; 0: it takes none
  // The horizontal filter for up to kBandRows rows, axis.in pixels wide, planes where the axis has windows.
  // Rows that are not there are any.
  // out[i]: the lanes of rows i * group to (i + 1) * group, i < kBandRows / group: three planes of
  // axis.outputs() columns that begin `plane` lanes apart, a multiple of 4.
  void (*filter_band)(const PixelBand& band, const AxisWeights& axis, BandScratch& scratch, size_t plane,
                      uint32_t* const* out);
  // The lanes of a group of rows of `count` bytes.
  void (*group_rows)(const uint8_t* const* rows, size_t count, uint32_t* out);
  // And the rows again.
  void (*split_group)(const uint32_t* lanes, size_t count, uint8_t* const* rows);
  // The vertical filter for one row of `count` bytes, as whole blocks: output `y` of the axis. groups[k]
  // holds the lanes of group first_group[y] + k.
  void (*sum_groups)(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y, size_t count,
                     uint8_t* out);
  // Interleaved RGB to three planes of `width` bytes, one after another.
  void (*split_planes)(const uint8_t* rgb, uint32_t width, uint8_t* planes);
  // And back, from wherever the planes are.
  void (*join_planes)(const uint8_t* const* planes, uint32_t width, uint8_t* rgb);
};

// The widest that this CPU has, at most as wide as is said.
enum class ResizePath : uint8_t { kBest, kAvx2, kPortable };
const ResizeKernels& ResizeKernelsOf(ResizePath path);

// Of four rows of bytes in each lane, for every set of kernels that takes those.
void GroupRowsOfBytes(const uint8_t* const* rows, size_t count, uint32_t* out);
void SplitGroupOfBytes(const uint32_t* lanes, size_t count, uint8_t* const* rows);

}  // namespace evenkeel::preprocess
