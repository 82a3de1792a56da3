// A picture's rows as floats, interpolated without widening the filter where the picture is reduced, bit for bit as
// torch does it for a float tensor on a CPU with AVX2: torch.nn.functional.interpolate(mode="bilinear" or "bicubic",
// antialias=False, align_corners=False) of torch 2.15. Each value depends on 2x2 (bilinear) or 4x4 (bicubic) inputs.
// FloatResizer is the one that widens the filter (antialias=True).
//
// Example:
//     Interpolator interpolator;
//     interpolator.Start({.in = size, .out = {448, 448}, .filter = ResizeFilter::kBicubic}, table, values);
//     PictureTarget target{.resized = size, .sink = &interpolator};  // every row of the picture as it is
//
// Thread safety: none; used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

class Interpolator final : public RowSink {
 public:
  struct Sizes {
    ImageSize in, out;
    // kBilinear or kBicubic. torch computes bilinear results of width + height up to kOtherKernel by other
    // instructions, which round differently: callers refuse such sizes.
    ResizeFilter filter = ResizeFilter::kBilinear;
  };
  static constexpr uint32_t kOtherKernel = 128;

  // `table`: the float of every byte of each channel, [3, 256]. `out`: [3, out.height, out.width], row-major; filled
  // once all `in.height` rows came. Both must live until then. A picture of the result's size is not interpolated.
  void Start(const Sizes& sizes, std::span<const float> table, std::span<float> out);
  void Take(const PlanarRow& row) override;

 private:
  static constexpr uint32_t kMaxTaps = 4;
  // The inputs of one place of an axis, whose positions are clamped to the axis, and their weights.
  struct Taps {
    std::array<uint32_t, kMaxTaps> input{};
    std::array<float, kMaxTaps> weight{};
  };
  void MakeTaps(uint32_t in, uint32_t out, std::vector<Taps>& taps) const;
  void FilterAcross(const PlanarRow& row);
  void WriteRow(uint32_t y);

  Sizes sizes_;
  uint32_t num_taps_ = 2;
  std::span<const float> table_;
  std::span<float> out_;
  std::vector<Taps> columns_, rows_;
  std::vector<float> line_;  // one channel of a row, as floats
  // The latest kMaxTaps rows after the horizontal step, [kMaxTaps, 3, out.width]; row y is at y % kMaxTaps.
  std::vector<float> across_;
  uint32_t taken_ = 0;    // rows
  uint32_t written_ = 0;  // rows of the result
};

}  // namespace evenkeel::preprocess
