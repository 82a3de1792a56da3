// Resizes a picture while its rows arrive: neither the source nor the result is held as a whole.
//
// Example:
//     RowResizer resizer;
//     resizer.Start({.in = {4000, 3000}, .out = {1148, 868}}, &sink);
//     for (const PixelBand& band : bands) resizer.Feed(band);  // the sink receives rows as they are complete
//
// The bytes are those of the named resampler for the whole picture. Sides that stay as they are are not
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
  // The part of the result that the sink receives; within it.
  uint32_t left = 0;
  uint32_t top = 0;
  ImageSize window;  // 0x0: all of it
  ResizeFilter filter = ResizeFilter::kBicubic;
  Resampler resampler = Resampler::kPil;
  // What the picture would measure in pixels of `in`, where a scaled decode rounded up; 0: `in`.
  double extent_width = 0;
  double extent_height = 0;
};

class RowResizer {
 public:
  explicit RowResizer(ResizePath path = ResizePath::kBest) : kernels_(ResizeKernelsOf(path)) {}
  RowResizer(const RowResizer&) = delete;
  RowResizer& operator=(const RowResizer&) = delete;

  // `sink` outlives the last Feed.
  void Start(const ResizePlan& plan, RowSink* sink);
  // The next rows, all planes or all interleaved. plan.in.height rows in all; bands of kBandRows are taken
  // from where they are, others are collected first.
  void Feed(const PixelBand& band);

 private:
  enum class Order : uint8_t { kNothing, kRows, kColumns, kRowsThenColumns, kColumnsThenRows };

  // One axis and what its weights were made for.
  struct Filter {
    Axis axis;
    AxisWeights weights;
    void Set(const Axis& wanted, WeightForm form, uint32_t windows);
  };
  // Rows of lanes (see ResizeKernels) that the vertical filter takes: the latest of them, in a ring.
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
  // Rows of `width` pixels that are collected until a band is complete.
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
  void TakeColumns(const uint8_t* row);  // a row that the vertical filter made
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
  size_t plane_ = 0;            // from plane to plane of what the horizontal filter made
  AlignedMemory lanes_;         // of a band after the horizontal filter, where the vertical one is not next
  RowBand fed_;                 // where less than a band comes at once
  RowBand made_;                // by the vertical filter, where the horizontal one comes second
  std::vector<uint8_t> split_;  // rows as planes, around the horizontal filter or without
  uint32_t arrived_ = 0;        // source rows
  uint32_t skipped_ = 0;        // of them, above the window, where no column is filtered
  uint32_t delivered_ = 0;      // rows
};

}  // namespace evenkeel::preprocess
