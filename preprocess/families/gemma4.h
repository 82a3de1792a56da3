// Gemma 4: the size that a picture or a frame is resized to.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// How pictures, or frames, are cut.
struct Gemma4Grid {
  uint32_t patch = 16;        // side of a patch in pixels
  uint32_t pool = 3;          // side of a token in patches
  uint32_t max_tokens = 280;  // of a picture or frame

  uint32_t max_patches() const { return max_tokens * pool * pool; }
};

// The largest size of whole tokens with about the picture's shape and at most max_patches() patches. InvalidArgument: a
// picture so long that it has no such size.
absl::StatusOr<ImageSize> Gemma4Size(ImageSize picture, const Gemma4Grid& grid);

}  // namespace evenkeel::preprocess
