// A picture's rows as floats, resized bilinearly with a widened filter, bit for bit as torch resizes a float tensor on a
// CPU with AVX2: torch.nn.functional.interpolate(mode="bilinear", antialias=True, align_corners=False) of torch 2.15.
// The resizers of bytes (row_resizer.h) have other weights and round to bytes after each axis.
//
// Example:
//     FloatResizer resizer;
//     resizer.Start({.in = size, .out = {224, 224}}, table, values);
//     PictureTarget target{.resized = size, .sink = &resizer};  // every row of the picture as it is
//
// Thread safety: none; used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

class FloatResizer final : public RowSink {
 public:
  struct Sizes {
    ImageSize in, out;
  };
  // `table`: the float of every byte. `out`: [3, out.height, out.width], row-major; filled once all rows came. Both
  // must live until then.
  void Start(const Sizes& sizes, const std::array<float, 256>& table, std::span<float> out);
  void Take(const PlanarRow& row) override;

 private:
  // What one place of an axis is made of: as many inputs as there are weights, from `first`.
  struct Window {
    uint32_t first = 0;
    std::vector<float> weights;
  };
  static void MakeWindows(uint32_t in, uint32_t out, std::vector<Window>& windows);
  void AddRow(const float* row, size_t channel);

  Sizes sizes_;
  const std::array<float, 256>* table_ = nullptr;
  std::span<float> out_;
  std::vector<Window> columns_, rows_;
  std::vector<float> row_, resized_;  // a row of one channel: as floats, and as wide as the result
  uint32_t taken_ = 0;
};

}  // namespace evenkeel::preprocess
