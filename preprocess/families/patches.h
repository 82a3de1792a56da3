// RGB8 frames -> rows of flattened patches in the order of Qwen2-VL, in one of the wire forms.
//
// Rows: (t, h/merge, w/merge, merge, merge). Columns: (channel, frame, patch, patch).
// Values: f32 and bf16 through a table of 256 entries a channel (bf16 is the f32 rounded to nearest even); u8
// as is.
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
// Rows that are tiles, [3, height, width].
inline PatchShape TileShape(ImageSize tile) { return {tile.height, 1, 1, tile.width}; }

// The exact normalised value of every byte: x = f32(byte * rescale), then (x - mean) / std in f32. [3 * 256]
std::vector<float> NormalizationTable(double rescale, const std::array<double, 3>& mean,
                                      const std::array<double, 3>& std);

uint16_t ToBf16(float value);

// The rows of one frame, as they come, to their places among the patches of its group of `shape.frames`;
// sides are multiples of patch * merge. A u8 wire may carry fewer frames of a group. The frame is written as
// all `frames_on_wire` of its group, as a still is, or as those that `part` names. With a TileShape() a row
// of the result is a tile.
class PatchWriter final : public RowSink {
 public:
  struct Part {
    uint32_t first = 0;  // frame of the group
    uint32_t count = 1;
  };
  // `out`: all rows of the group's patches. `table` is kept by reference.
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
  uint32_t frames_;  // of the group
  Part part_;        // which of them this is
  const std::vector<float>& table_;
  std::array<uint16_t, 3 * 256> rounded_;  // the table as bf16, where that is on the wire
  std::span<std::byte> out_;
  uint32_t y_ = 0;
  // The rows so far of a row of patches, which are written together: patches lie far apart, and a cache line
  // would else be fetched for every row. Of patches that are small; memory that the thread keeps.
  std::vector<uint8_t> waiting_;
};

}  // namespace evenkeel::preprocess
