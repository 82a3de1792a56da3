// Rows of patches whose values are [patch, patch, 3]: channels last, as Gemma 4 and SigLIP 2 have them.
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

// Writes a picture's rows as patches, in rows from the left. Sides are multiples of `patch`. `table`
// (PixelSettings::Table) and `out`, all patches of the picture, must outlive it.
class InterleavedPatches final : public RowSink {
 public:
  InterleavedPatches(uint32_t patch, Wire wire, const std::vector<float>& table, std::span<std::byte> out)
      : patch_(patch), wire_(wire), table_(table), out_(out) {}

  void Take(const PlanarRow& row) override;

 private:
  void Put(size_t place, size_t channel, uint8_t byte);

  const size_t patch_;
  const Wire wire_;
  const std::vector<float>& table_;
  const std::span<std::byte> out_;
  size_t y_ = 0;
};

}  // namespace evenkeel::preprocess
