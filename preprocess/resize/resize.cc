// Resizes whole pictures in memory, and converts between planes and interleaved rows.
#include "preprocess/resize/resize.h"

#include <cstring>

#include "preprocess/resize/row_resizer.h"

namespace evenkeel::preprocess {

void CopyInterleaved(const PixelBand& band, uint32_t row, uint32_t width, uint8_t* rgb) {
  const PixelBand from = band.From(row, 1);
  if (band.interleaved()) {
    std::memcpy(rgb, from.plane[0], size_t{3} * width);
  } else {
    ResizeKernelsOf(ResizePath::kBest).join_planes(from.plane, width, rgb);
  }
}

void InterleavedRows::Take(const PlanarRow& row) {
  ResizeKernelsOf(ResizePath::kBest).join_planes(row.plane, row.width, rgb_.data());
  rgb_ = rgb_.subspan(size_t{3} * row.width);
}

void Resize(Resampler resampler, ResizeFilter filter, std::span<const uint8_t> in, ImageSize in_size,
            std::span<uint8_t> out, ImageSize out_size) {
  InterleavedRows rows(out);
  Resize(resampler, filter, in, in_size, out_size, rows);
}

void Resize(Resampler resampler, ResizeFilter filter, std::span<const uint8_t> in, ImageSize in_size,
            ImageSize out_size, RowSink& out) {
  static thread_local RowResizer resizer;
  resizer.Start({.in = in_size, .out = out_size, .filter = filter, .resampler = resampler}, &out);
  resizer.Feed(InterleavedBand(in.data(), size_t{3} * in_size.width, in_size.height));
}

}  // namespace evenkeel::preprocess
