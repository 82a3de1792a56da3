// Janus, DeepSeek-VL: the size that a picture is resized to.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "preprocess/families/families.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The longer side becomes `side`, the other keeps the shape, but neither is below `shortest`. Sides of `picture` are
// positive.
ImageSize FittedSize(ImageSize picture, uint32_t side, uint32_t shortest);

inline constexpr char kJanusPlaceholder[] = "<image_placeholder>";
// The number of placeholders of a picture, from the processor's own file, which it finishes.
absl::StatusOr<uint32_t> ReadJanusTokens(const FamilySource& source);

}  // namespace evenkeel::preprocess
