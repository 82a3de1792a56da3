// A resized picture or frame that is resized again, for processors that resize what they have resized.
// Start() begins a picture, a resizer writes its rows, and ResizeTo() resizes it again.
//
// Thread safety: none; each thread has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/families/pixel_settings.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

class PlanarPicture final : public RowSink {
 public:
  // Begins a picture, in the memory of the one before it.
  void Start(ImageSize size);
  void Take(const PlanarRow& row) override;
  // Resizes the complete picture with the filter and the resampler of `pixels`.
  void ResizeTo(ImageSize to, const PixelSettings& pixels, RowSink& out) const;

 private:
  size_t plane() const { return size_t{size_.width} * size_.height; }

  ImageSize size_;
  std::vector<uint8_t> planes_;  // red, green, blue
  uint32_t taken_ = 0;           // rows
};

}  // namespace evenkeel::preprocess
