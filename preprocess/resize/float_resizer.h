// A picture's rows as floats, resized with a widened filter, bit for bit as torch resizes a float tensor on a CPU with
// AVX2: torch.nn.functional.interpolate(mode="bilinear" or "bicubic", antialias=True, align_corners=False) of torch 2.15.
// The resizers of bytes (row_resizer.h) have other weights and round to bytes after each axis.
//
// Example:
//     FloatResizer resizer;
//     resizer.Start({.in = size, .out = {224, 224}}, table, values);
//     PictureTarget target{.resized = size, .sink = &resizer};  // every row of the picture as it is
//
// The first resize of qwen-vl-utils' fetch_video, torchvision.transforms.functional.resize of bytes, is this one with
// kBicubic, then a clamp to 0..255, then halves to even: RoundToBytes.
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
    ResizeFilter filter = ResizeFilter::kBilinear;  // or kBicubic
  };
  // `table`: the float of every byte. `out`: [3, out.height, out.width], row-major; filled once all `in.height` rows
  // came. Both must live until then.
  void Start(const Sizes& sizes, const std::array<float, 256>& table, std::span<float> out);
  void Take(const PlanarRow& row) override;

 private:
  // Rows are filtered across together: a row of one channel is a lane.
  static constexpr uint32_t kRows = 8, kLanes = 3 * kRows;
  // What one place of an axis is made of: as many inputs as there are weights, from `first`.
  struct Window {
    uint32_t first = 0;
    std::vector<float> weights;
  };
  static void MakeWindows(uint32_t in, uint32_t out, ResizeFilter filter, std::vector<Window>& windows);
  void FilterLanes();
  void AddRow(const float* row, size_t channel);

  Sizes sizes_;
  const std::array<float, 256>* table_ = nullptr;
  std::span<float> out_;
  std::vector<Window> columns_, rows_;
  std::vector<float> lanes_;    // [in.width, kLanes]: the rows that came since the last were filtered
  std::vector<float> resized_;  // [kLanes, out.width]
  uint32_t waiting_ = 0;        // rows in lanes_
  uint32_t taken_ = 0;          // rows that are part of `out_`
};

// Each value clamped to 0..255 and rounded to the nearest byte, halves to even. `bytes` has as many as `values`.
void RoundToBytes(std::span<const float> values, uint8_t* bytes);

}  // namespace evenkeel::preprocess
