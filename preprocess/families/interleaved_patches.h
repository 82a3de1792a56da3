// Rows of patches whose values are [patch, patch, 3]: channels last, as Gemma 4, SigLIP 2 and LFM2-VL have them.
//
// Thread safety: plain values; needs none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The field of such patches: a row is one.
FieldSpec InterleavedField(std::string_view name, const PixelSettings& pixels, uint32_t patch);

// InvalidArgument: the wire form is u8, in which a patch's values are expanded as if channels were planes, and the
// channels have different means or deviations.
absl::Status CheckInterleaved(const ConfigFile& config, const PixelSettings& pixels);

// The tiles of a picture, whose patches are together; the tiles are in rows from the left.
struct PatchTiles {
  uint32_t side = 0;    // of a tile, in patches; 0: the whole picture is one
  size_t distance = 0;  // patches from the first of a tile to the first of the next
};

// Writes a picture's rows as patches, in rows from the left. Sides are multiples of `patch`, and of tiles. `table`
// (PixelSettings::Table) and `out`, all patches of the picture, must outlive it.
class InterleavedPatches final : public RowSink {
 public:
  InterleavedPatches(uint32_t patch, Wire wire, const std::vector<float>& table, std::span<std::byte> out,
                     const PatchTiles& tiles = {})
      : patch_(patch), wire_(wire), table_(table), out_(out), tiles_(tiles) {}

  void Take(const PlanarRow& row) override;

 private:
  // Among all patches, of the patch in this row and column.
  size_t PlaceOf(size_t row, size_t column, size_t columns) const;
  void Put(size_t place, size_t channel, uint8_t byte);

  const size_t patch_;
  const Wire wire_;
  const std::vector<float>& table_;
  const std::span<std::byte> out_;
  const PatchTiles tiles_;
  size_t y_ = 0;
};

}  // namespace evenkeel::preprocess
