// What CLIP, SigLIP and LLaVA share: every picture becomes one of the same size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "preprocess/families.h"
#include "preprocess/pixel_settings.h"

namespace evenkeel {

struct FixedSize {
  PixelSettings pixels;
  uint32_t shortest_edge = 0;  // 0: the picture becomes `resized` whatever its shape
  ImageSize resized;
  uint32_t side = 0;           // of the result, the middle of what was resized
  bool pad_to_square = false;  // before the resize, with the mean colour
  std::string placeholder = "<image>";
};

// Reads the keys of CLIP's image processor: colours, size, crop.
absl::StatusOr<FixedSize> ReadCropped(ConfigFile& config, const ProcessorSpec& spec);
// Reads the keys of SigLIP's, which has one size and no crop, to its end.
absl::StatusOr<FixedSize> ReadSquare(ConfigFile& config, const ProcessorSpec& spec);

// One tile a picture, (side / patch)^2 + extra_tokens placeholders.
MadeFamily MakeFixedSize(std::string_view family, const FixedSize& fixed, uint32_t patch,
                         int32_t extra_tokens, const FamilySource& source);

}  // namespace evenkeel
