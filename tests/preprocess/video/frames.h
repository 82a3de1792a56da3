// Rows of frames as pictures, for this folder's tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "preprocess/image/image.h"
#include "preprocess/resize/resize.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {

// Interleaved RGB behind what is there.
class AppendedRgb final : public BandSink {
 public:
  AppendedRgb(uint32_t width, std::vector<uint8_t>& rgb) : width_(width), rgb_(rgb) {}
  void TakeBand(const PixelBand& band) override {
    const size_t row = size_t{3} * width_;
    for (uint32_t r = 0; r < band.rows; ++r) {
      rgb_.resize(rgb_.size() + row);
      CopyInterleaved(band, r, width_, rgb_.data() + rgb_.size() - row);
    }
  }

 private:
  uint32_t width_;
  std::vector<uint8_t>& rgb_;
};

inline absl::Status AppendRgb(FrameRows rows, uint32_t width, std::vector<uint8_t>& rgb) {
  AppendedRgb sink(width, rgb);
  return rows(sink);
}

}  // namespace evenkeel::preprocess
