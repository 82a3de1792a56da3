// Types shared by all resizing: sizes, filters, and rows of a picture before and after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace evenkeel::preprocess {

// kPil: Pillow's Image.resize up to release 12. kPil13: from 13 on, which filters columns before rows if a
// picture loses much more height than width. kAtenU8: torchvision's antialiased resize of uint8 tensors.
enum class Resampler : uint8_t { kPil, kPil13, kAtenU8 };
// kBox and kHamming are Pillow's alone; kNearest takes the pixel at an output's centre.
enum class ResizeFilter : uint8_t { kBilinear, kBicubic, kLanczos, kNearest, kBox, kHamming };

// The number of rows that pass from decoding to resizing at once: few enough to stay in the cache, and as
// many as the vector instructions filter at once.
inline constexpr uint32_t kBandRows = 16;

struct ImageSize {
  uint32_t width = 0;
  uint32_t height = 0;

  uint64_t rgb_bytes() const { return uint64_t{3} * width * height; }
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// Rows of an RGB8 picture as a decoder makes them, or with the colours of a JPEG. Channel c of pixel x of row
// r is plane[c][stride * r + step * x].
struct PixelBand {
  const uint8_t* plane[3] = {};
  size_t stride = 0;
  uint32_t rows = 0;
  uint32_t step = 1;  // 1: planes; 3: interleaved, plane[0] is its first byte
  bool ycc = false;   // Y, Cb and Cr as planes, only for callers that ask for them

  bool interleaved() const { return step == 3; }
  PixelBand From(uint32_t row, uint32_t count) const {
    const size_t to = stride * row;
    return {{plane[0] + to, plane[1] + to, plane[2] + to}, stride, count, step, ycc};
  }
};
inline PixelBand InterleavedBand(const uint8_t* rgb, size_t stride, uint32_t rows) {
  return {{rgb, rgb + 1, rgb + 2}, stride, rows, 3};
}
// Row `row` of a band of `width` pixels, as interleaved RGB.
void CopyInterleaved(const PixelBand& band, uint32_t row, uint32_t width, uint8_t* rgb);

// One row of an RGB8 picture as three planes of `width` bytes each.
struct PlanarRow {
  const uint8_t* plane[3] = {};
  uint32_t width = 0;
};

// Receives a picture's rows one after another, from top to bottom.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // The row is valid only during the call.
  virtual void Take(const PlanarRow& row) = 0;
};

// Writes rows into [height, width, 3] bytes of the caller.
class InterleavedRows final : public RowSink {
 public:
  explicit InterleavedRows(std::span<uint8_t> rgb) : rgb_(rgb) {}
  void Take(const PlanarRow& row) override;

 private:
  std::span<uint8_t> rgb_;  // what is not written yet
};

// Resizes a whole picture: `in` and `out` are [height, width, 3], both sizes at least 1x1.
void Resize(Resampler resampler, ResizeFilter filter, std::span<const uint8_t> in, ImageSize in_size,
            std::span<uint8_t> out, ImageSize out_size);
// The same, delivered row by row.
void Resize(Resampler resampler, ResizeFilter filter, std::span<const uint8_t> in, ImageSize in_size,
            ImageSize out_size, RowSink& out);

}  // namespace evenkeel::preprocess
