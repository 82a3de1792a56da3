// Converts the samples of a TIFF to RGB with the arithmetic of Pillow's unpackers and of its convert("RGB").
#include "preprocess/image/sample_rows.h"

#include <algorithm>
#include <cstring>

namespace evenkeel::preprocess {
namespace {

using Colours = SampleLayout::Colours;
using Alpha = SampleLayout::Alpha;

constexpr uint32_t kByteBits = 8;

// Samples of fewer than 8 bits, from the high bit of each byte.
void Unpack(const uint8_t* packed, uint32_t bits, uint32_t count, uint8_t* out) {
  const uint32_t mask = (1u << bits) - 1;
  for (uint32_t i = 0, at = 0; i < count; ++i, at += bits)
    out[i] = static_cast<uint8_t>(packed[at / kByteBits] >> (kByteBits - bits - at % kByteBits) & mask);
}

// One channel of 16 bits is clipped by the options that clip; everything else keeps its high byte.
uint8_t Narrowed(uint16_t wide, bool clipped) {
  constexpr uint16_t kLargest = 255;
  return static_cast<uint8_t>(clipped ? std::min(wide, kLargest) : wide >> kByteBits);
}

// Pillow's unpacking of premultiplied colours. What is fully transparent becomes black.
uint8_t Divided(uint32_t value, uint32_t alpha) {
  constexpr uint32_t kLargest = 255;
  if (alpha == 0) return 0;
  return static_cast<uint8_t>(std::min(kLargest * value / alpha, kLargest));
}

}  // namespace

SampleRows::SampleRows(const SampleLayout& layout, const std::array<Colour, 256>& palette,
                       const ColourOptions& options, uint32_t width)
    : layout_(layout),
      palette_(palette),
      options_(options),
      width_(width),
      bytes_(size_t{width} * layout.samples),
      rgba_(size_t{4} * width) {}

void SampleRows::Put(const uint8_t* stored, uint32_t first, uint32_t count, uint32_t plane) {
  const size_t samples = layout_.samples;
  uint8_t* const out = bytes_.data() + first * samples;
  const uint32_t values = layout_.separate ? count : count * layout_.samples;
  if (layout_.bits < kByteBits) return Unpack(stored, layout_.bits, values, out);
  const size_t step = layout_.separate ? samples : 1;
  if (layout_.bits == kByteBits) {
    if (step == 1) {
      std::memcpy(out, stored, values);
    } else {
      for (size_t i = 0; i < values; ++i) out[i * step + plane] = stored[i];
    }
    return;
  }
  const bool clipped = layout_.samples == 1 && options_.sixteen_bit == SixteenBit::kClipGrey;
  for (size_t i = 0; i < values; ++i) {
    uint16_t wide = 0;
    std::memcpy(&wide, stored + 2 * i, sizeof(wide));
    out[i * step + plane] = Narrowed(wide, clipped);
  }
}

void SampleRows::RgbaOf(const uint8_t* pixel, uint8_t* rgba) const {
  switch (layout_.colours) {
    case Colours::kGrey:
    case Colours::kInvertedGrey: {
      // Of n bits the largest value is white: 255 is a multiple of it.
      const uint32_t bits = std::min(layout_.bits, kByteBits);
      const uint32_t grey = pixel[0] * (255u / ((1u << bits) - 1));
      const bool inverted = layout_.colours == Colours::kInvertedGrey;
      std::memset(rgba, static_cast<int>(inverted ? 255 - grey : grey), 3);
      break;
    }
    case Colours::kPalette:
      std::memcpy(rgba, palette_[pixel[0]].data(), 3);
      break;
    case Colours::kRgb:
      std::memcpy(rgba, pixel, 3);
      break;
    case Colours::kCmyk:
      CmykToRgb(pixel, 1, /*inverted=*/false, rgba);
      break;
  }
  if (layout_.alpha == Alpha::kNone) return;
  rgba[3] = pixel[layout_.num_colours()];
  if (layout_.alpha == Alpha::kPremultiplied) {
    for (int c = 0; c < 3; ++c) rgba[c] = Divided(rgba[c], rgba[3]);
  }
}

void SampleRows::ToRgb(uint8_t* rgb) {
  if (layout_.colours == Colours::kRgb && layout_.samples == 3) {
    std::memcpy(rgb, bytes_.data(), bytes_.size());
    return;
  }
  constexpr uint8_t kOpaque = 255;
  for (size_t x = 0; x < width_; ++x) {
    rgba_[4 * x + 3] = kOpaque;
    RgbaOf(bytes_.data() + x * layout_.samples, rgba_.data() + 4 * x);
  }
  RgbaToRgb(rgba_.data(), width_, layout_.alpha == Alpha::kNone ? std::nullopt : options_.background, rgb);
}

}  // namespace evenkeel::preprocess
