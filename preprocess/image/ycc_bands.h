// Converts a JPEG's planes, which arrive a few rows at a time, to bands of RGB planes, or passes them on.
//
// Example:
//     bands.Start(shape, &sink);
//     while (rows_are_left()) {
//       // The decoder writes shape.lines rows of luma to rows(0) and the chroma that belongs to them to
//       // rows(1) and rows(2).
//       Decode(bands.rows(0), bands.rows(1), bands.rows(2));
//       bands.Take();  // the sink receives each band of kBandRows rows, and the last one, once complete
//     }
//
// If chroma has half the height, the last row waits for the chroma below it.
//
// Thread safety: none; memory is reused from picture to picture.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preprocess/image/image.h"
#include "preprocess/image/ycc_rows.h"
#include "preprocess/resize/resize.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {

struct YccShape {
  ImageSize size;
  uint32_t lines = kBandRows;  // rows that arrive at once: a divisor of kBandRows, even with halved_height
  bool grey = false;           // no chroma
  bool kept = false;           // bands have Y, Cb and Cr; only with chroma of full size
  // Chroma has half of this side, rounded up; with half the width at least 2 columns.
  bool halved_width = false;
  bool halved_height = false;  // only together with the width
  // Bytes of a row that the decoder writes.
  size_t luma_bytes = 0;
  size_t chroma_bytes = 0;
};

class YccBands {
 public:
  explicit YccBands(YccPath path = YccPath::kFastest) : kernels_(YccKernelsOf(path)) {}
  YccBands(const YccBands&) = delete;
  YccBands& operator=(const YccBands&) = delete;

  // `sink` must outlive the last Take.
  void Start(const YccShape& shape, BandSink* sink);
  // Memory for the next rows of a component, until Take().
  uint8_t** rows(int component) { return planes_[component].rows; }
  void Take();

 private:
  // The rows of a component that arrive, and the last row before them.
  struct Plane {
    uint8_t* rows[kBandRows];
    uint8_t* before;
    ScratchBytes memory;
  };
  // Vertically interpolated chroma for a row of pixels.
  struct Sums {
    int16_t* cb;
    int16_t* cr;
  };

  void StartPlane(uint32_t count, size_t row_bytes, Plane* plane);
  void TakeRows(uint32_t end);
  void TakeRowsOfHalvedHeight(uint32_t end);
  const uint8_t* luma_row(uint32_t y) const;
  const uint8_t* halved_row(const Plane& plane, uint32_t row) const;
  void PutHalved(uint32_t y, const Sums& sums, const ChromaRounding& rounding);
  uint8_t* band_row(uint32_t y) const { return band_ + stride_ * (y % kBandRows); }
  bool converts() const { return !shape_.grey && !shape_.kept; }
  void PointRowsIntoBand();
  void Done(uint32_t y);  // the row is complete in the band

  const YccKernels& kernels_;
  YccShape shape_;
  BandSink* sink_ = nullptr;
  uint32_t first_ = 0;  // number of the first row that arrives
  uint32_t chroma_lines_ = 0;
  ImageSize chroma_;
  Plane planes_[3];
  ScratchBytes sums_memory_;
  Sums upper_{}, lower_{};
  ScratchBytes band_memory_;
  uint8_t* band_ = nullptr;
  size_t pitch_ = 0;   // distance of planes
  size_t stride_ = 0;  // distance of rows
};

}  // namespace evenkeel::preprocess
