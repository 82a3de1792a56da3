// Rows of a TIFF's samples, as the file stores them, to rows of RGB8, as Pillow converts them.
//
// For each row, Put() is called for every plane and every tile that it crosses, then ToRgb().
//
// Thread safety: none; it belongs to one decode.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "preprocess/image/image.h"

namespace evenkeel::preprocess {

// The meaning of a pixel's samples. Further samples, after the colour and the alpha, are ignored.
struct SampleLayout {
  enum class Colours : uint8_t { kGrey, kInvertedGrey, kPalette, kRgb, kCmyk };
  enum class Alpha : uint8_t { kNone, kStraight, kPremultiplied };
  Colours colours = Colours::kGrey;
  Alpha alpha = Alpha::kNone;  // the first sample after the colour
  uint32_t bits = 8;           // of a sample: 1, 2, 4, 8 or 16
  uint32_t samples = 1;        // of a pixel; 1 with less than 8 bits
  bool separate = false;       // each sample is a plane of its own

  uint32_t num_colours() const { return colours == Colours::kRgb ? 3 : colours == Colours::kCmyk ? 4 : 1; }
};

class SampleRows {
 public:
  SampleRows(const SampleLayout& layout, const std::array<Colour, 256>& palette, const ColourOptions& options,
             uint32_t width);
  // Pixels of the row from `first`, as stored: packed from the high bit, 16 bits in the machine's order.
  // `plane`: 0 unless samples are separate.
  void Put(const uint8_t* stored, uint32_t first, uint32_t count, uint32_t plane);
  // `rgb`: 3 * width bytes.
  void ToRgb(uint8_t* rgb);

 private:
  // Colours and alpha of pixel `x` as bytes; grey and palettes are three components already.
  void RgbaOf(const uint8_t* pixel, uint8_t* rgba) const;

  SampleLayout layout_;
  const std::array<Colour, 256>& palette_;
  ColourOptions options_;
  uint32_t width_;
  std::vector<uint8_t> bytes_;  // [width, samples]
  std::vector<uint8_t> rgba_;   // [width, 4]
};

}  // namespace evenkeel::preprocess
