// Runs the two passes of a resize while rows arrive, keeping only the rows that the next outputs need.
#include "preprocess/resize/row_resizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace evenkeel::preprocess {
namespace {

// Pillow 13 filters columns first if that makes the other pass much smaller: the height shrinks, and by more
// than twice as many pixels as the width. The other resamplers never do. Each pass rounds to bytes, so the
// order decides the result.
bool ColumnsFirst(const ResizePlan& plan) {
  if (plan.resampler != Resampler::kPil13) return false;
  const int64_t less_high = int64_t{plan.in.height} - plan.out.height;
  const int64_t less_wide = int64_t{plan.in.width} - plan.out.width;
  return less_high > 0 && less_high > 2 * less_wide;
}

// Rows as planes of `width` bytes, one plane after another.
PixelBand PlanarBand(const uint8_t* planes, size_t width, uint32_t rows) {
  return {{planes, planes + width, planes + 2 * width}, 3 * width, rows, 1};
}
PlanarRow RowOf(const uint8_t* planes, size_t plane, uint32_t left, uint32_t width) {
  return {{planes + left, planes + plane + left, planes + 2 * plane + left}, width};
}

}  // namespace

void RowResizer::Filter::Set(const Axis& wanted, WeightForm form, uint32_t windows) {
  if (axis == wanted) return;
  MakeAxisWeights(wanted, form, &weights);
  MakeWindowWeights(weights, windows, &weights.windows);
  axis = wanted;
}

void RowResizer::RowBand::Add(const PixelBand& row, uint32_t width) {
  const size_t row_bytes = size_t{3} * width;
  if (bytes.size() < row_bytes * kBandRows) bytes.resize(row_bytes * kBandRows);
  uint8_t* to = bytes.data() + row_bytes * rows++;
  step = row.step;
  if (row.interleaved()) {
    std::memcpy(to, row.plane[0], row_bytes);
  } else {
    for (uint32_t c = 0; c < 3; ++c) std::memcpy(to + size_t{c} * width, row.plane[c], width);
  }
}

PixelBand RowResizer::RowBand::Take(uint32_t width) {
  const uint32_t count = std::exchange(rows, 0);
  if (step == 3) return InterleavedBand(bytes.data(), size_t{3} * width, count);
  return PlanarBand(bytes.data(), width, count);
}

void RowResizer::Start(const ResizePlan& plan, RowSink* sink) {
  // Unset values mean the whole picture.
  plan_ = plan;
  if (plan_.window == ImageSize{}) plan_.window = plan.out;
  if (plan_.extent_width == 0) plan_.extent_width = plan.in.width;
  if (plan_.extent_height == 0) plan_.extent_height = plan.in.height;
  sink_ = sink;
  arrived_ = skipped_ = delivered_ = fed_.rows = made_.rows = 0;
  // An axis is filtered if its size changes or a scaled decode covers a little less than its pixels. The
  // order of both passes decides the bytes, because each pass rounds.
  const bool rows = plan.in.width != plan.out.width || plan_.extent_width != plan.in.width;
  const bool columns = plan.in.height != plan.out.height || plan_.extent_height != plan.in.height;
  order_ = rows && columns ? ColumnsFirst(plan) ? Order::kColumnsThenRows : Order::kRowsThenColumns
           : rows          ? Order::kRows
           : columns       ? Order::kColumns
                           : Order::kNothing;
  if (rows) {
    rows_.Set({plan.in.width, plan.out.width, plan_.left, plan_.window.width, plan_.extent_width, plan.filter,
               plan.resampler},
              kernels_.form, kernels_.windows);
  }
  // The horizontal filters store outputs in whole groups of four.
  plane_ = (size_t{plan_.window.width} + 3) / 4 * 4;
  split_.resize(3 * plane_ * group_);
  if (columns) StartColumns();
}

void RowResizer::StartColumns() {
  // The ring has room for the inputs of one output and one band more: a band arrives as a whole.
  columns_.Set({plan_.in.height, plan_.out.height, plan_.top, plan_.window.height, plan_.extent_height,
                plan_.filter, plan_.resampler},
               kernels_.form, /*windows=*/0);
  ring_.columns = order_ == Order::kRowsThenColumns ? 3 * plane_ : size_t{3} * plan_.in.width;
  ring_.capacity = columns_.weights.groups_per_output + kBandRows / group_;
  ring_.arrived = ring_.next_output = 0;
  ring_.lanes = ring_.memory.Get<uint32_t>(InWholeBlocks(ring_.columns) * ring_.capacity);
  ring_.output.resize(InWholeBlocks(ring_.columns));
  ring_.wanted.resize(ring_.capacity);
}

// A full band that needs no waiting rows is filtered in place. Other rows are copied until they are a band.
void RowResizer::Feed(const PixelBand& band) {
  const uint32_t width = plan_.in.width;
  for (uint32_t done = 0; done < band.rows;) {
    uint32_t count = std::min(kBandRows, band.rows - done);
    const bool whole_band = fed_.rows == 0 && (count == kBandRows || arrived_ + count == plan_.in.height);
    if (!whole_band) count = 1;
    arrived_ += count;
    const PixelBand next = band.From(done, count);
    if (whole_band) {
      TakeBand(next);
    } else {
      fed_.Add(next, width);
      if (fed_.rows == kBandRows || complete()) TakeBand(fed_.Take(width));
    }
    done += count;
  }
}

void RowResizer::TakeBand(const PixelBand& band) {
  switch (order_) {
    case Order::kNothing: {
      const PixelBand planes = Planes(band);
      for (uint32_t r = 0; r < planes.rows; ++r) {
        if (skipped_++ < plan_.top) continue;
        const PixelBand row = planes.From(r, 1);
        Deliver({{row.plane[0] + plan_.left, row.plane[1] + plan_.left, row.plane[2] + plan_.left},
                 plan_.window.width});
      }
      break;
    }
    case Order::kRows:
      FilterRows(band);
      break;
    case Order::kRowsThenColumns:
      FilterRowsToRing(band);
      break;
    case Order::kColumns:
    case Order::kColumnsThenRows:
      PutIntoRing(Planes(band));
      break;
  }
}

PixelBand RowResizer::Planes(const PixelBand& band) {
  if (!band.interleaved()) return band;
  const uint32_t width = plan_.in.width;
  const size_t row_bytes = size_t{3} * width;
  if (split_.size() < row_bytes * kBandRows) split_.resize(row_bytes * kBandRows);
  for (uint32_t r = 0; r < band.rows; ++r) {
    kernels_.split_planes(band.From(r, 1).plane[0], width, split_.data() + row_bytes * r);
  }
  return PlanarBand(split_.data(), width, band.rows);
}

void RowResizer::FilterBand(const PixelBand& band, uint32_t* const* out) {
  const bool windows = !rows_.weights.windows.blocks.empty();
  kernels_.filter_band(windows ? Planes(band) : band, rows_.weights, scratch_, plane_, out);
}

// Rows come out of the horizontal filter as groups in lanes; they are split into bytes and delivered one by
// one.
void RowResizer::FilterRows(const PixelBand& band) {
  const size_t columns = 3 * plane_;
  uint32_t* lanes = lanes_.Get<uint32_t>(columns * kBandRows / group_);
  uint32_t* out[kBandRows];
  for (uint32_t i = 0; i < kBandRows / group_; ++i) out[i] = lanes + columns * i;
  FilterBand(band, out);
  for (uint32_t r = 0; r < band.rows; ++r) {
    if (r % group_ == 0) {
      uint8_t* split[kBandRows];
      for (uint32_t i = 0; i < group_; ++i) split[i] = split_.data() + columns * i;
      kernels_.split_group(out[r / group_], columns, split);
    }
    if (order_ == Order::kRows && skipped_++ < plan_.top) continue;
    Deliver(RowOf(split_.data() + columns * (r % group_), plane_, 0, plan_.window.width));
  }
}

// The horizontal filter writes lanes, which are the input of the vertical one, directly into the ring.
void RowResizer::FilterRowsToRing(const PixelBand& band) {
  uint32_t* out[kBandRows];
  for (uint32_t i = 0; i < kBandRows / group_; ++i) out[i] = ring_.group(ring_.arrived + i);
  FilterBand(band, out);
  ring_.arrived += (band.rows + group_ - 1) / group_;
  SumReadyRows();
}

// Groups rows that no horizontal filter has made into lanes.
void RowResizer::PutIntoRing(const PixelBand& planes) {
  const uint32_t width = plan_.in.width;
  for (uint32_t first = 0; first < planes.rows; first += group_) {
    uint32_t* lanes = ring_.group(ring_.arrived++);
    for (uint32_t c = 0; c < 3; ++c) {
      // The group may extend beyond the last row. Any row serves there, because its weights are 0.
      const uint8_t* from[kBandRows];
      for (uint32_t i = 0; i < group_; ++i) {
        from[i] = planes.plane[c] + planes.stride * std::min(first + i, planes.rows - 1);
      }
      kernels_.group_rows(from, width, lanes + size_t{c} * width);
    }
  }
  SumReadyRows();
}

// Makes every output row whose groups have arrived. Outputs need ascending rows, so the first one that cannot
// be made ends the loop. If the horizontal filter comes second, the rows of the last, incomplete band go to
// it at the end.
void RowResizer::SumReadyRows() {
  const AxisWeights& weights = columns_.weights;
  for (uint32_t& y = ring_.next_output; y < weights.outputs(); ++y) {
    const uint32_t first = weights.first_group[y], count = weights.num_groups[y];
    if (first + count > ring_.arrived) break;
    for (uint32_t k = 0; k < count; ++k) ring_.wanted[k] = ring_.group(first + k);
    kernels_.sum_groups(ring_.wanted.data(), weights, y, ring_.columns, ring_.output.data());
    TakeColumns(ring_.output.data());
  }
  if (complete() && made_.rows > 0) FilterRows(made_.Take(plan_.in.width));
}

// Delivers a row from the vertical filter, or collects a band of them for the horizontal one.
void RowResizer::TakeColumns(const uint8_t* row) {
  const uint32_t width = plan_.in.width;
  switch (order_) {
    case Order::kRowsThenColumns:
      return Deliver(RowOf(row, plane_, 0, plan_.window.width));
    case Order::kColumns:
      // Columns outside the window are cut here, because this axis was not filtered.
      return Deliver(RowOf(row, width, plan_.left, plan_.window.width));
    default:
      made_.Add(PlanarBand(row, width, 1), width);
      if (made_.rows == kBandRows) FilterRows(made_.Take(width));
  }
}

void RowResizer::Deliver(const PlanarRow& row) {
  if (delivered_++ < plan_.window.height) sink_->Take(row);
}

}  // namespace evenkeel::preprocess
