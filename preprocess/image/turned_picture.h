// A whole picture, to be turned or mirrored: the rows that come last may be wanted first.
//
// Example:
//     turned.Start(size);
//     for (const PixelBand& band : bands) turned.TakeBand(band);
//     turned.Deliver(orientation, sink);  // the sink receives bands of planes, top to bottom
//
// Thread safety: none; memory is reused from picture to picture.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preprocess/image/image.h"
#include "preprocess/resize/resize.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {

// EXIF's numbers of orientations, 1 to 8. Whether sides are swapped:
inline bool Turns(uint32_t orientation) { return orientation >= 5; }
// The number of a clockwise turn by 0, 90, 180 or 270 degrees.
uint32_t OrientationOf(uint32_t degrees);

class TurnedPicture final : public BandSink {
 public:
  void Start(ImageSize size);
  void TakeBand(const PixelBand& band) override;
  // Upright, as Pillow's exif_transpose turns it.
  void Deliver(uint32_t orientation, BandSink& sink);

 private:
  ImageSize size_;
  uint32_t taken_ = 0;
  size_t stride_ = 0;  // from row to row of a plane
  size_t plane_ = 0;   // from plane to plane
  uint8_t* stored_ = nullptr;
  ScratchBytes stored_memory_;
  ScratchBytes rows_memory_;
};

}  // namespace evenkeel::preprocess
