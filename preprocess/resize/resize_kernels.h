// The inner loops of resizing, and the fastest ones for this CPU. All give the same bytes: their sums are
// integers modulo 2^32, and the final sum fits.
//
// The horizontal filter stores its result in the form that the vertical filter takes: a row of 32-bit lanes,
// each with one column of a group of source rows in the layout of WeightForm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/resize/axis_weights.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// Rows of lanes are padded to whole blocks of this many; padding lanes are ignored.
inline constexpr size_t kColumnBlock = 64;
constexpr size_t InWholeBlocks(size_t columns) {
  return (columns + kColumnBlock - 1) / kColumnBlock * kColumnBlock;
}

// Memory aligned to a cache line. It is reused, and growing does not keep its contents.
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

// Memory for filter_band, reused from band to band.
struct BandScratch {
  AlignedMemory groups;
};

struct ResizeKernels {
  WeightForm form;
  uint32_t windows;  // windows of a block of WindowWeights; 0: filter_band takes none
  // The horizontal filter for up to kBandRows rows of axis.in pixels, as planes if the axis has windows.
  // Results for missing rows are arbitrary. out[i], i < kBandRows / group: the lanes of rows i * group to
  // (i + 1) * group: three planes of axis.outputs() columns that begin `plane` lanes apart, a multiple of
  // 4.
  void (*filter_band)(const PixelBand& band, const AxisWeights& axis, BandScratch& scratch, size_t plane,
                      uint32_t* const* out);
  // Packs a group of rows of `count` bytes into lanes.
  void (*group_rows)(const uint8_t* const* rows, size_t count, uint32_t* out);
  // The inverse: lanes to rows.
  void (*split_group)(const uint32_t* lanes, size_t count, uint8_t* const* rows);
  // The vertical filter for one row of `count` bytes, in whole blocks: output `y` of the axis. groups[k] has
  // the lanes of group first_group[y] + k.
  void (*sum_groups)(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y, size_t count,
                     uint8_t* out);
  // Interleaved RGB to three planes of `width` bytes, one after another.
  void (*split_planes)(const uint8_t* rgb, uint32_t width, uint8_t* planes);
  // The inverse; the planes may be anywhere.
  void (*join_planes)(const uint8_t* const* planes, uint32_t width, uint8_t* rgb);
};

// The widest path to use, if this CPU has it.
enum class ResizePath : uint8_t { kBest, kAvx2, kPortable };
const ResizeKernels& ResizeKernelsOf(ResizePath path);

// For groups of four rows of bytes, which several sets of kernels use.
void GroupRowsOfBytes(const uint8_t* const* rows, size_t count, uint32_t* out);
void SplitGroupOfBytes(const uint32_t* lanes, size_t count, uint8_t* const* rows);

}  // namespace evenkeel::preprocess
