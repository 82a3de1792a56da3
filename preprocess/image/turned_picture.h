// Stores a whole picture to turn or mirror it: the first output row may need the last input row.
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

// Orientations have EXIF's numbers, 1 to 8. True: width and height are swapped.
inline bool Turns(uint32_t orientation) { return orientation >= 5; }
// The number of a clockwise turn by 0, 90, 180 or 270 degrees.
uint32_t OrientationOf(uint32_t degrees);

class TurnedPicture final : public BandSink {
 public:
  void Start(ImageSize size);
  void TakeBand(const PixelBand& band) override;
  // Upright, like Pillow's exif_transpose.
  void Deliver(uint32_t orientation, BandSink& sink);

 private:
  ImageSize size_;
  uint32_t taken_ = 0;
  size_t stride_ = 0;  // distance of rows
  size_t plane_ = 0;   // distance of planes
  uint8_t* stored_ = nullptr;
  ScratchBytes stored_memory_;
  ScratchBytes rows_memory_;
};

}  // namespace evenkeel::preprocess
