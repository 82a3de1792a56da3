// Resizes a picture while its rows arrive: neither the source nor the result is in memory as a whole.
//
// Example:
//     RowResizer resizer;
//     resizer.Start({.in = {4000, 3000}, .out = {1148, 868}}, &sink);
//     for (const PixelBand& band : bands) resizer.Feed(band);  // the sink receives every row once it is complete
//
// The bytes are those of the named resampler for the whole picture. An axis whose size does not change is not
// filtered.
//
// Thread safety: none; memory is reused from picture to picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/resize/axis_weights.h"
#include "preprocess/resize/resize.h"
#include "preprocess/resize/resize_kernels.h"

namespace evenkeel::preprocess {

struct ResizePlan {
  ImageSize in;
  ImageSize out;
  // The part of the result that the sink receives.
  uint32_t left = 0;
  uint32_t top = 0;
  ImageSize window;  // 0x0: the whole result
  ResizeFilter filter = ResizeFilter::kBicubic;
  Resampler resampler = Resampler::kPil;
  // The picture's size in pixels of `in`, if a scaled decode rounded up; 0: `in`.
  double extent_width = 0;
  double extent_height = 0;
};

class RowResizer {
 public:
  explicit RowResizer(ResizePath path = ResizePath::kBest) : kernels_(ResizeKernelsOf(path)) {}
  RowResizer(const RowResizer&) = delete;
  RowResizer& operator=(const RowResizer&) = delete;

  // `sink` must outlive the last Feed.
  void Start(const ResizePlan& plan, RowSink* sink);
  // The next rows, always planes or always interleaved, plan.in.height rows in all. Bands of kBandRows are
  // used in place; other rows are copied first.
  void Feed(const PixelBand& band);

 private:
  enum class Order : uint8_t { kNothing, kRows, kColumns, kRowsThenColumns, kColumnsThenRows };

  // One axis, and the plan that its weights were made for.
  struct Filter {
    Axis axis;
    AxisWeights weights;
    void Set(const Axis& wanted, WeightForm form, uint32_t windows);
  };
  // The latest rows of lanes (see ResizeKernels) for the vertical filter, in a ring.
  struct GroupRing {
    size_t columns = 0;
    uint32_t capacity = 0;  // groups
    uint32_t arrived = 0;
    uint32_t next_output = 0;
    AlignedMemory memory;
    uint32_t* lanes = nullptr;
    std::vector<uint8_t> output;
    std::vector<const uint32_t*> wanted;
    uint32_t* group(uint32_t index) { return lanes + InWholeBlocks(columns) * (index % capacity); }
  };
  // Collects rows of `width` pixels until a band is complete.
  struct RowBand {
    std::vector<uint8_t> bytes;
    uint32_t rows = 0;
    uint32_t step = 1;
    void Add(const PixelBand& row, uint32_t width);
    PixelBand Take(uint32_t width);  // valid until the next Add
  };

  void StartColumns();
  void TakeBand(const PixelBand& band);
  PixelBand Planes(const PixelBand& band);  // at most kBandRows rows
  void FilterBand(const PixelBand& band, uint32_t* const* out);
  void FilterRows(const PixelBand& band);
  void FilterRowsToRing(const PixelBand& band);
  void PutIntoRing(const PixelBand& planes);
  void SumReadyRows();
  void TakeColumns(const uint8_t* row);  // a row from the vertical filter
  void Deliver(const PlanarRow& row);
  bool complete() const { return arrived_ == plan_.in.height; }

  const ResizeKernels& kernels_;
  const uint32_t group_ = GroupOf(kernels_.form);
  ResizePlan plan_;
  RowSink* sink_ = nullptr;
  Order order_ = Order::kNothing;
  Filter rows_;
  Filter columns_;
  BandScratch scratch_;
  GroupRing ring_;
  size_t plane_ = 0;            // distance of the planes that the horizontal filter makes
  AlignedMemory lanes_;         // of a band after the horizontal filter, if the vertical one does not follow
  RowBand fed_;                 // if less than a band arrives at once
  RowBand made_;                // rows of the vertical filter, if the horizontal one comes second
  std::vector<uint8_t> split_;  // rows as planes, around the horizontal filter or without it
  uint32_t arrived_ = 0;        // source rows
  uint32_t skipped_ = 0;        // of them, above the window, if no column is filtered
  uint32_t delivered_ = 0;      // rows
};

}  // namespace evenkeel::preprocess
