// Writes rows of pixels into patches whose channels are last, in each of the wire forms.
#include "preprocess/families/interleaved_patches.h"

#include <cstring>

#include "preprocess/families/patches.h"

namespace evenkeel::preprocess {

FieldSpec InterleavedField(std::string_view name, const PixelSettings& pixels, uint32_t patch) {
  FieldSpec field = TileField(name, pixels, {patch, patch});
  if (pixels.wire != Wire::kU8) field.trailing = {uint64_t{patch} * patch * 3};
  return field;
}

absl::Status CheckInterleaved(const ConfigFile& config, const PixelSettings& pixels) {
  const std::vector<float> table = pixels.Table();
  for (size_t i = 256; i < table.size(); ++i) {
    if (table[i] == table[i % 256] || pixels.wire != Wire::kU8) continue;
    return config.Error("image_mean",
                        "or image_std differs from channel to channel, which needs processor.wire f32 or "
                        "bf16");
  }
  return absl::OkStatus();
}

void InterleavedPatches::Take(const PlanarRow& row) {
  const size_t patches = row.width / patch_;
  for (size_t patch = 0; patch < patches; ++patch) {
    // The first value of this row of pixels in the patch.
    const size_t first = (PlaceOf(y_ / patch_, patch, patches) * patch_ + y_ % patch_) * patch_ * 3;
    for (size_t x = 0; x < patch_; ++x) {
      for (size_t c = 0; c < 3; ++c) Put(first + 3 * x + c, c, row.plane[c][patch * patch_ + x]);
    }
  }
  ++y_;
}

size_t InterleavedPatches::PlaceOf(size_t row, size_t column, size_t columns) const {
  if (tiles_.side == 0) return row * columns + column;
  const size_t tile = row / tiles_.side * (columns / tiles_.side) + column / tiles_.side;
  return tile * tiles_.distance + row % tiles_.side * tiles_.side + column % tiles_.side;
}

void InterleavedPatches::Put(size_t place, size_t channel, uint8_t byte) {
  if (wire_ == Wire::kU8) {
    out_[place] = std::byte{byte};
    return;
  }
  const float value = table_[256 * channel + byte];
  if (wire_ == Wire::kBf16) {
    const uint16_t rounded = ToBf16(value);
    std::memcpy(&out_[place * sizeof(rounded)], &rounded, sizeof(rounded));
  } else {
    std::memcpy(&out_[place * sizeof(value)], &value, sizeof(value));
  }
}

}  // namespace evenkeel::preprocess
