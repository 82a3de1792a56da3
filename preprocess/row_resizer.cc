#include "preprocess/row_resizer.h"

#include <algorithm>
#include <cstring>

namespace evenkeel {
namespace {

// Pillow 13 filters columns first where that makes the other pass much smaller; the others never do.
bool ColumnsFirst(const ResizePlan& plan) {
  if (plan.resampler != Resampler::kPil13) return false;
  const int64_t less_high = int64_t{plan.in.height} - plan.out.height;
  const int64_t less_wide = int64_t{plan.in.width} - plan.out.width;
  return less_high > 0 && less_high > 2 * less_wide;
}

}  // namespace

void RowResizer::Filter::Set(const Axis& wanted) {
  if (axis == wanted) return;
  MakeAxisWeights(wanted, &weights);
  axis = wanted;
}

void RowResizer::Start(const ResizePlan& plan, RowSink* sink) {
  plan_ = plan;
  if (plan_.window == ImageSize{}) plan_.window = plan.out;
  if (plan_.extent_width == 0) plan_.extent_width = plan.in.width;
  if (plan_.extent_height == 0) plan_.extent_height = plan.in.height;
  sink_ = sink;
  delivered_ = skipped_ = band_rows_ = 0;
  const bool rows = plan.in.width != plan.out.width || plan_.extent_width != plan.in.width;
  const bool columns = plan.in.height != plan.out.height || plan_.extent_height != plan.in.height;
  order_ = rows && columns ? ColumnsFirst(plan) ? Order::kColumnsThenRows : Order::kRowsThenColumns
           : rows          ? Order::kRows
           : columns       ? Order::kColumns
                           : Order::kNothing;
  if (rows) {
    rows_.Set({plan.in.width, plan.out.width, plan_.left, plan_.window.width, plan_.extent_width, plan.filter,
               plan.resampler});
    filtered_.resize(size_t{3} * plan_.window.width * kBandRows);
  }
  planes_.resize(size_t{3} * plan_.window.width);
  if (!columns) return;
  columns_.Set({plan.in.height, plan.out.height, plan_.top, plan_.window.height, plan_.extent_height,
                plan.filter, plan.resampler});
  ring_.row_bytes = size_t{3} * (order_ == Order::kRowsThenColumns ? plan_.window.width : plan.in.width);
  ring_.capacity = columns_.weights.pairs_per_output + 1;
  ring_.rows = ring_.next_output = 0;
  ring_.pair_values = (2 * ring_.row_bytes + 31) / 32 * 32;
  ring_.values = ring_.memory.Get(ring_.pair_values * ring_.capacity);
  ring_.even.resize(ring_.row_bytes);
  ring_.output.resize(ring_.row_bytes);
  ring_.wanted.resize(ring_.capacity);
  if (order_ == Order::kColumnsThenRows) band_.resize(ring_.row_bytes * kBandRows);
}

void RowResizer::Feed(const uint8_t* rgb, size_t stride, uint32_t rows) {
  const bool rows_first = order_ == Order::kRows || order_ == Order::kRowsThenColumns;
  for (uint32_t done = 0; done < rows;) {
    const uint8_t* from = rgb + stride * done;
    if (rows_first) {
      const uint32_t count = std::min(kBandRows, rows - done);
      FilterRows(from, stride, count);
      done += count;
    } else {
      order_ == Order::kNothing ? DeliverInterleaved(from) : FilterColumns(from);
      ++done;
    }
  }
}

void RowResizer::FilterRows(const uint8_t* rgb, size_t stride, uint32_t rows) {
  const size_t row_bytes = size_t{3} * plan_.window.width;
  kernels_.filter_band(rgb, stride, rows, rows_.weights, scratch_, filtered_.data(), row_bytes);
  for (uint32_t r = 0; r < rows; ++r) {
    const uint8_t* row = filtered_.data() + row_bytes * r;
    if (order_ == Order::kRowsThenColumns) {
      FilterColumns(row);
    } else if (order_ == Order::kColumnsThenRows) {
      Deliver(row);
    } else if (skipped_++ >= plan_.top) {
      Deliver(row);
    }
  }
}

void RowResizer::FilterColumns(const uint8_t* row) {
  const uint32_t index = ring_.rows++;
  const bool last = ring_.rows == plan_.in.height;
  if (index % 2 == 0 && !last) {
    std::memcpy(ring_.even.data(), row, ring_.row_bytes);
    return;
  }
  // The last row of an odd number stands for its missing other, whose weight is 0.
  kernels_.pair_rows(index % 2 == 0 ? row : ring_.even.data(), row, ring_.row_bytes, ring_.pair(index / 2));
  SumReadyRows(index / 2 + 1, last);
}

void RowResizer::SumReadyRows(uint32_t pairs_ready, bool last) {
  const AxisWeights& weights = columns_.weights;
  for (uint32_t& y = ring_.next_output; y < weights.outputs(); ++y) {
    const uint32_t first = weights.first_pair[y], count = weights.num_pairs[y];
    if (first + count > pairs_ready) break;
    for (uint32_t k = 0; k < count; ++k) ring_.wanted[k] = ring_.pair(first + k);
    kernels_.sum_pairs(ring_.wanted.data(), weights, y, ring_.row_bytes, ring_.output.data());
    TakeColumns(ring_.output.data());
  }
  if (last && order_ == Order::kColumnsThenRows) FlushBand();
}

void RowResizer::TakeColumns(const uint8_t* row) {
  if (order_ == Order::kRowsThenColumns) return Deliver(row);
  if (order_ == Order::kColumns) return DeliverInterleaved(row);
  std::memcpy(band_.data() + ring_.row_bytes * band_rows_, row, ring_.row_bytes);
  if (++band_rows_ == kBandRows) FlushBand();
}

void RowResizer::FlushBand() {
  if (band_rows_ > 0) FilterRows(band_.data(), ring_.row_bytes, band_rows_);
  band_rows_ = 0;
}

void RowResizer::Deliver(const uint8_t* planes) {
  const uint32_t width = plan_.window.width;
  if (delivered_++ >= plan_.window.height) return;
  sink_->Take({{planes, planes + width, planes + 2 * size_t{width}}, width});
}

// Of an axis that is not filtered the window is cut here.
void RowResizer::DeliverInterleaved(const uint8_t* rgb) {
  if (order_ == Order::kNothing && skipped_++ < plan_.top) return;
  kernels_.split_planes(rgb + size_t{3} * plan_.left, plan_.window.width, planes_.data());
  Deliver(planes_.data());
}

}  // namespace evenkeel
