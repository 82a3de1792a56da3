// Collects rows of luma and chroma from the decoder, and converts them row by row into bands of RGB planes.
#include "preprocess/image/ycc_bands.h"

#include <algorithm>
#include <utility>

namespace evenkeel::preprocess {
namespace {

constexpr size_t kLine = 64;  // bytes of a cache line

// Before and after a row of chroma: its edge pixels repeated, and bytes that a block may read.
constexpr size_t kMargin = kLine;

constexpr size_t InLines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

void YccBands::Start(const YccShape& shape, BandSink* sink) {
  shape_ = shape, sink_ = sink, first_ = 0;
  const ImageSize size = shape.size;
  chroma_ = {shape.halved_width ? (size.width + 1) / 2 : size.width,
             shape.halved_height ? (size.height + 1) / 2 : size.height};
  chroma_lines_ = shape.halved_height ? shape.lines / 2 : shape.lines;
  // Planes are an odd number of cache lines apart, because all rows of a band are read together and must not
  // fall into the same cache set.
  pitch_ = InLines(std::max<size_t>({shape.luma_bytes, shape.chroma_bytes, size.width})) | kLine;
  stride_ = shape.grey ? pitch_ : 3 * pitch_;
  band_ = band_memory_.Get(stride_ * kBandRows);
  if (!converts()) return PointRowsIntoBand();
  StartPlane(shape.lines, shape.luma_bytes, &planes_[0]);
  for (int c : {1, 2}) StartPlane(chroma_lines_, shape.chroma_bytes, &planes_[c]);
  if (!shape.halved_width) return;
  const size_t columns = chroma_.width + 2 + kMargin;
  int16_t* sums = sums_memory_.GetAs<int16_t>(4 * columns).data();
  upper_ = {sums, sums + columns}, lower_ = {sums + 2 * columns, sums + 3 * columns};
}

// One row more than arrive at once: the last row of the previous call.
void YccBands::StartPlane(uint32_t count, size_t row_bytes, Plane* plane) {
  const size_t stride = kMargin + InLines(row_bytes) + kMargin;
  plane->before = plane->memory.Get(stride * (count + 1)) + kMargin;
  for (uint32_t i = 0; i < count; ++i) plane->rows[i] = plane->before + stride * (i + 1);
}

// Without conversion the decoder writes directly into the band.
void YccBands::PointRowsIntoBand() {
  for (size_t c = 0; c < (shape_.grey ? 1 : 3); ++c) {
    for (uint32_t i = 0; i < shape_.lines; ++i) planes_[c].rows[i] = band_row(first_ + i) + pitch_ * c;
  }
}

void YccBands::Take() {
  const uint32_t end = std::min(first_ + shape_.lines, shape_.size.height);
  for (int c : {1, 2}) {
    if (!shape_.halved_width) break;
    for (uint32_t i = 0; i < chroma_lines_; ++i) {
      // The edge columns are repeated: the interpolation of halved chroma reads one column beyond each side.
      uint8_t* row = planes_[c].rows[i];
      row[-1] = row[0], row[chroma_.width] = row[chroma_.width - 1];
    }
  }
  shape_.halved_height ? TakeRowsOfHalvedHeight(end) : TakeRows(end);
  first_ += shape_.lines;
  if (!converts()) PointRowsIntoBand();
}

// Chroma of full height: every row of pixels has its own, so nothing waits.
void YccBands::TakeRows(uint32_t end) {
  for (uint32_t y = first_; y < end; ++y) {
    const uint8_t* const cb = planes_[1].rows[y - first_];
    const uint8_t* const cr = planes_[2].rows[y - first_];
    if (shape_.halved_width) {
      kernels_.sum_row(cb - 1, chroma_.width + 2, upper_.cb);
      kernels_.sum_row(cr - 1, chroma_.width + 2, upper_.cr);
      PutHalved(y, upper_, kOneRowRounding);
    } else if (converts()) {
      uint8_t* const rgb = band_row(y);
      uint8_t* const out[] = {rgb, rgb + pitch_, rgb + 2 * pitch_};
      kernels_.full_to_rgb(luma_row(y), cb, cr, shape_.size.width, out);
    }
    Done(y);
  }
}

// Two rows of pixels lie between two rows of chroma, one nearer to each. One row lies above the first row of
// chroma and one below the last; both use that row alone.
void YccBands::TakeRowsOfHalvedHeight(uint32_t end) {
  const bool last = end == shape_.size.height;
  const uint32_t from = first_ / 2, to = last ? chroma_.height : (first_ + shape_.lines) / 2 - 1;
  for (uint32_t below = from; below <= to; ++below) {
    for (int c : {1, 2}) {
      const uint8_t* upper = halved_row(planes_[c], below == 0 ? 0 : below - 1);
      const uint8_t* lower = halved_row(planes_[c], std::min(below, chroma_.height - 1));
      kernels_.sum_rows(upper - 1, lower - 1, chroma_.width + 2, c == 1 ? upper_.cb : upper_.cr,
                        c == 1 ? lower_.cb : lower_.cr);
    }
    const uint32_t y = 2 * below;
    if (below > 0 && y - 1 < shape_.size.height) {
      PutHalved(y - 1, upper_, kTwoRowsRounding);
      Done(y - 1);
    }
    if (below < chroma_.height) {
      PutHalved(y, lower_, kTwoRowsRounding);
      Done(y);
    }
  }
  // The last rows are kept for the next call.
  std::swap(planes_[0].before, planes_[0].rows[shape_.lines - 1]);
  for (int c : {1, 2}) std::swap(planes_[c].before, planes_[c].rows[chroma_lines_ - 1]);
}

const uint8_t* YccBands::luma_row(uint32_t y) const {
  return y < first_ ? planes_[0].before : planes_[0].rows[y - first_];
}

const uint8_t* YccBands::halved_row(const Plane& plane, uint32_t row) const {
  return row < first_ / 2 ? plane.before : plane.rows[row - first_ / 2];
}

// Writes row `y` of the band from its luma and from sums of chroma of half the width.
void YccBands::PutHalved(uint32_t y, const Sums& sums, const ChromaRounding& rounding) {
  uint8_t* const rgb = band_row(y);
  uint8_t* const out[] = {rgb, rgb + pitch_, rgb + 2 * pitch_};
  kernels_.halved_to_rgb(luma_row(y), {sums.cb, sums.cr}, rounding, shape_.size.width, out);
}

// Hands the band over if row `y` completes it.
void YccBands::Done(uint32_t y) {
  if (y % kBandRows != kBandRows - 1 && y + 1 != shape_.size.height) return;
  const size_t plane = shape_.grey ? 0 : pitch_;
  sink_->TakeBand(
      PixelBand{{band_, band_ + plane, band_ + 2 * plane}, stride_, y % kBandRows + 1, 1, shape_.kept});
}

}  // namespace evenkeel::preprocess
