// Keeps the rows of a resized picture as planes, and feeds them to the next resize.
#include "preprocess/families/planar_picture.h"

#include <algorithm>
#include <cstring>

#include "preprocess/resize/row_resizer.h"

namespace evenkeel::preprocess {

void PlanarPicture::Start(ImageSize size) {
  size_ = size;
  planes_.resize(size.rgb_bytes());
  taken_ = 0;
}

void PlanarPicture::Take(const PlanarRow& row) {
  for (size_t c = 0; c < 3; ++c) {
    std::memcpy(planes_.data() + plane() * c + size_t{taken_} * size_.width, row.plane[c], size_.width);
  }
  ++taken_;
}

void PlanarPicture::ResizeTo(ImageSize to, const PixelSettings& pixels, RowSink& out) const {
  static thread_local RowResizer resizer;
  resizer.Start({.in = size_, .out = to, .filter = pixels.filter, .resampler = pixels.picture.resampler},
                &out);
  const uint8_t* first = planes_.data();
  const PixelBand whole{{first, first + plane(), first + 2 * plane()}, size_.width, size_.height, /*step=*/1};
  for (uint32_t row = 0; row < size_.height; row += kBandRows) {
    resizer.Feed(whole.From(row, std::min(kBandRows, size_.height - row)));
  }
}

}  // namespace evenkeel::preprocess
