// RGB8 frames -> rows of flattened patches in the order of Qwen2-VL, in one of the wire forms.
//
// Row order: (t, h/merge, w/merge, merge, merge). Columns of a row: (channel, frame, patch, patch). Values:
// f32 and bf16 through a table of 256 entries per channel (bf16 is the f32 value rounded to nearest even); u8
// unchanged.
//
// Thread safety: plain values; needs none.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/job.h"
#include "core/part.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

struct PatchShape {
  uint32_t patch = 14;
  uint32_t frames = 2;  // temporal patch size
  uint32_t merge = 2;
  uint32_t patch_width = 0;  // 0: patches are squares

  uint32_t width() const { return patch_width != 0 ? patch_width : patch; }
};
// For rows that are whole tiles, [3, height, width].
inline PatchShape TileShape(ImageSize tile) { return {tile.height, 1, 1, tile.width}; }

// The exact normalized value of every byte, [3 * 256]: x = f32(byte * rescale), then (x - mean) / std in f32.
std::vector<float> NormalizationTable(double rescale, const std::array<double, 3>& mean,
                                      const std::array<double, 3>& std);

uint16_t ToBf16(float value);
// Copies values that no table of bytes has to a field of kF32 or kBf16, which has room for exactly these.
void WriteFloats(std::span<const float> values, DType dtype, std::span<std::byte> out);

// Writes the rows of one frame, as they arrive, to their places among the patches of the frame's group of
// `shape.frames`; sides are multiples of patch * merge. A u8 wire may carry fewer frames of a group. The
// frame is written as all `frames_on_wire` frames of its group (a picture), or as the frames in `part`. With
// TileShape() a row of the result is a tile.
class PatchWriter final : public RowSink {
 public:
  struct Part {
    uint32_t first = 0;  // index in the group
    uint32_t count = 1;
  };
  // `out`: all rows of the group's patches. `table` must outlive the writer.
  PatchWriter(const PatchShape& shape, uint32_t width, Wire wire, uint32_t frames_on_wire,
              const std::vector<float>& table, std::span<std::byte> out)
      : PatchWriter(shape, width, wire, frames_on_wire, {0, frames_on_wire}, table, out) {}
  PatchWriter(const PatchShape& shape, uint32_t width, Wire wire, uint32_t frames_on_wire, Part part,
              const std::vector<float>& table, std::span<std::byte> out);
  PatchWriter(PatchWriter&&) = default;
  ~PatchWriter() override;
  void Take(const PlanarRow& row) override;

 private:
  // Rows of pixels of one row of patches: `count` of them from `first`, `stride` bytes apart.
  struct Lines {
    const uint8_t* plane[3];
    size_t stride;
    uint32_t first;
    uint32_t count;
  };
  void Put(const Lines& lines);
  template <typename T, typename Convert>
  void PutAs(const Lines& lines, Convert convert);
  template <uint32_t kPatch, typename T, typename Convert>
  void PutPatches(const Lines& lines, Convert convert);

  PatchShape shape_;
  uint32_t width_;
  Wire wire_;
  uint32_t frames_;  // frames of the group on the wire
  Part part_;        // the frames that this one is written as
  const std::vector<float>& table_;
  std::array<uint16_t, 3 * 256> rounded_;  // the table as bf16, if that is the wire form
  std::span<std::byte> out_;
  uint32_t y_ = 0;
  // The pixel rows so far of one row of small patches, which are written together: patches are far apart in
  // memory, and otherwise a cache line would be loaded for every pixel row. The memory is kept per thread.
  std::vector<uint8_t> waiting_;
};

}  // namespace evenkeel::preprocess
