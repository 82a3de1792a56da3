#include "preprocess/row_resizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

void RowResizer::Filter::Set(const Axis& wanted, WeightForm form) {
  if (axis == wanted) return;
  MakeAxisWeights(wanted, form, &weights);
  axis = wanted;
}

void RowResizer::RowBand::Add(const uint8_t* from, size_t row_bytes) {
  if (bytes.size() < row_bytes * kBandRows) bytes.resize(row_bytes * kBandRows);
  std::memcpy(bytes.data() + row_bytes * rows++, from, row_bytes);
}

void RowResizer::Start(const ResizePlan& plan, RowSink* sink) {
  plan_ = plan;
  if (plan_.window == ImageSize{}) plan_.window = plan.out;
  if (plan_.extent_width == 0) plan_.extent_width = plan.in.width;
  if (plan_.extent_height == 0) plan_.extent_height = plan.in.height;
  sink_ = sink;
  arrived_ = skipped_ = delivered_ = fed_.rows = made_.rows = 0;
  const bool rows = plan.in.width != plan.out.width || plan_.extent_width != plan.in.width;
  const bool columns = plan.in.height != plan.out.height || plan_.extent_height != plan.in.height;
  order_ = rows && columns ? ColumnsFirst(plan) ? Order::kColumnsThenRows : Order::kRowsThenColumns
           : rows          ? Order::kRows
           : columns       ? Order::kColumns
                           : Order::kNothing;
  if (rows) {
    rows_.Set({plan.in.width, plan.out.width, plan_.left, plan_.window.width, plan_.extent_width, plan.filter,
               plan.resampler},
              kernels_.form);
  }
  plane_ = (size_t{plan_.window.width} + 3) / 4 * 4;
  split_.resize(3 * plane_ * group_);
  if (columns) StartColumns();
}

void RowResizer::StartColumns() {
  columns_.Set({plan_.in.height, plan_.out.height, plan_.top, plan_.window.height, plan_.extent_height,
                plan_.filter, plan_.resampler},
               kernels_.form);
  ring_.columns = order_ == Order::kRowsThenColumns ? 3 * plane_ : size_t{3} * plan_.in.width;
  ring_.capacity = columns_.weights.groups_per_output + kBandRows / group_;
  ring_.arrived = ring_.next_output = 0;
  ring_.lanes = ring_.memory.Get<uint32_t>(InWholeBlocks(ring_.columns) * ring_.capacity);
  ring_.output.resize(InWholeBlocks(ring_.columns));
  ring_.wanted.resize(ring_.capacity);
}

void RowResizer::Feed(const uint8_t* rgb, size_t stride, uint32_t rows) {
  const size_t row_bytes = size_t{3} * plan_.in.width;
  while (rows > 0) {
    uint32_t count = std::min(kBandRows, rows);
    const bool whole_band = fed_.rows == 0 && (count == kBandRows || arrived_ + count == plan_.in.height);
    if (!whole_band) count = 1;
    arrived_ += count;
    if (whole_band) {
      TakeBand(rgb, stride, count);
    } else {
      fed_.Add(rgb, row_bytes);
      if (fed_.rows == kBandRows || complete()) {
        TakeBand(fed_.bytes.data(), row_bytes, std::exchange(fed_.rows, 0));
      }
    }
    rgb += stride * count;
    rows -= count;
  }
}

void RowResizer::TakeBand(const uint8_t* rgb, size_t stride, uint32_t rows) {
  switch (order_) {
    case Order::kNothing:
      for (uint32_t r = 0; r < rows; ++r) DeliverInterleaved(rgb + stride * r);
      break;
    case Order::kRows:
      FilterRows(rgb, stride, rows);
      break;
    case Order::kRowsThenColumns:
      FilterRowsToRing(rgb, stride, rows);
      break;
    case Order::kColumns:
    case Order::kColumnsThenRows:
      PutIntoRing(rgb, stride, rows);
      break;
  }
}

void RowResizer::FilterRows(const uint8_t* rgb, size_t stride, uint32_t rows) {
  const size_t columns = 3 * plane_;
  uint32_t* lanes = lanes_.Get<uint32_t>(columns * kBandRows / group_);
  uint32_t* out[kBandRows];
  for (uint32_t i = 0; i < kBandRows / group_; ++i) out[i] = lanes + columns * i;
  kernels_.filter_band(rgb, stride, rows, rows_.weights, scratch_, plane_, out);
  for (uint32_t r = 0; r < rows; ++r) {
    if (r % group_ == 0) {
      uint8_t* split[kBandRows];
      for (uint32_t i = 0; i < group_; ++i) split[i] = split_.data() + columns * i;
      kernels_.split_group(out[r / group_], columns, split);
    }
    if (order_ == Order::kRows && skipped_++ < plan_.top) continue;
    Deliver(split_.data() + columns * (r % group_), plane_);
  }
}

void RowResizer::FilterRowsToRing(const uint8_t* rgb, size_t stride, uint32_t rows) {
  uint32_t* out[kBandRows];
  for (uint32_t i = 0; i < kBandRows / group_; ++i) out[i] = ring_.group(ring_.arrived + i);
  kernels_.filter_band(rgb, stride, rows, rows_.weights, scratch_, plane_, out);
  ring_.arrived += (rows + group_ - 1) / group_;
  SumReadyRows();
}

void RowResizer::PutIntoRing(const uint8_t* rgb, size_t stride, uint32_t rows) {
  for (uint32_t first = 0; first < rows; first += group_) {
    // Rows beyond the last are any: their weights are 0.
    const uint8_t* from[kBandRows];
    for (uint32_t i = 0; i < group_; ++i) from[i] = rgb + stride * std::min(first + i, rows - 1);
    kernels_.group_rows(from, ring_.columns, ring_.group(ring_.arrived++));
  }
  SumReadyRows();
}

void RowResizer::SumReadyRows() {
  const AxisWeights& weights = columns_.weights;
  for (uint32_t& y = ring_.next_output; y < weights.outputs(); ++y) {
    const uint32_t first = weights.first_group[y], count = weights.num_groups[y];
    if (first + count > ring_.arrived) break;
    for (uint32_t k = 0; k < count; ++k) ring_.wanted[k] = ring_.group(first + k);
    kernels_.sum_groups(ring_.wanted.data(), weights, y, ring_.columns, ring_.output.data());
    TakeColumns(ring_.output.data());
  }
  if (complete() && made_.rows > 0)
    FilterRows(made_.bytes.data(), ring_.columns, std::exchange(made_.rows, 0));
}

void RowResizer::TakeColumns(const uint8_t* row) {
  if (order_ == Order::kRowsThenColumns) return Deliver(row, plane_);
  if (order_ == Order::kColumns) return DeliverInterleaved(row);
  made_.Add(row, ring_.columns);
  if (made_.rows == kBandRows) FilterRows(made_.bytes.data(), ring_.columns, std::exchange(made_.rows, 0));
}

void RowResizer::Deliver(const uint8_t* planes, size_t plane) {
  if (delivered_++ >= plan_.window.height) return;
  sink_->Take({{planes, planes + plane, planes + 2 * plane}, plan_.window.width});
}

// Of an axis that is not filtered the window is cut here.
void RowResizer::DeliverInterleaved(const uint8_t* rgb) {
  if (order_ == Order::kNothing && skipped_++ < plan_.top) return;
  const uint32_t width = plan_.window.width;
  kernels_.split_planes(rgb + size_t{3} * plan_.left, width, split_.data());
  Deliver(split_.data(), width);
}

}  // namespace evenkeel
