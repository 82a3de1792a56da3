// Resizes a picture while its rows arrive: neither the source nor the result is held as a whole.
//
//   RowResizer resizer;
//   resizer.Start({.in = {4000, 3000}, .out = {1148, 868}}, &sink);
//   for (each band of rows) resizer.Feed(rgb, stride, rows);   // the sink receives rows as they are complete
//
// The bytes are those of the named resampler for the whole picture. Sides that stay as they are are not
// filtered.
//
// Thread safety: none; memory is reused from picture to picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/axis_weights.h"
#include "preprocess/resize.h"
#include "preprocess/resize_kernels.h"

namespace evenkeel {

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
  // The next rows, interleaved RGB, `stride` bytes apart. plan.in.height rows in all.
  void Feed(const uint8_t* rgb, size_t stride, uint32_t rows);

 private:
  enum class Order : uint8_t { kNothing, kRows, kColumns, kRowsThenColumns, kColumnsThenRows };

  // One axis and what its weights were made for.
  struct Filter {
    Axis axis;
    AxisWeights weights;
    void Set(const Axis& wanted);
  };
  // Paired source rows of the vertical filter: the latest of them, in a ring.
  struct PairRing {
    size_t row_bytes = 0;
    size_t pair_values = 0;  // of two rows, in whole cache lines
    uint32_t capacity = 0;   // pairs
    uint32_t rows = 0;       // arrived
    uint32_t next_output = 0;
    AlignedValues memory;
    int16_t* values = nullptr;
    std::vector<uint8_t> even;  // the row that waits for its other
    std::vector<uint8_t> output;
    std::vector<const int16_t*> wanted;
    int16_t* pair(uint32_t index) { return values + pair_values * (index % capacity); }
  };

  void FilterRows(const uint8_t* rgb, size_t stride, uint32_t rows);
  void FilterColumns(const uint8_t* row);
  void SumReadyRows(uint32_t pairs_ready, bool last);
  void TakeColumns(const uint8_t* row);  // a row that FilterColumns made
  void FlushBand();
  void Deliver(const uint8_t* planes);
  void DeliverInterleaved(const uint8_t* rgb);

  const ResizeKernels& kernels_;
  ResizePlan plan_;
  RowSink* sink_ = nullptr;
  Order order_ = Order::kNothing;
  Filter rows_;
  Filter columns_;
  BandScratch scratch_;
  PairRing ring_;
  std::vector<uint8_t> filtered_;  // a band after the horizontal filter
  std::vector<uint8_t> band_;      // rows that wait for the horizontal filter, where it comes second
  uint32_t band_rows_ = 0;
  std::vector<uint8_t> planes_;
  uint32_t skipped_ = 0;    // source rows that arrived, where no column is filtered
  uint32_t delivered_ = 0;  // rows
};

}  // namespace evenkeel
