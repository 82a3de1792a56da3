// Videos of MiniCPM-V 4.6: every chosen frame as a picture, next to the pictures of minicpm_v4_6.h.
//
// Thread safety: a pure function.
#pragma once

#include <memory>

#include "preprocess/families/families.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

// Pictures by `pictures`, and videos by the folder's video processor: pixel_values_videos [patches, 3, patch, patch],
// those of each frame's whole and slices, and of each video target_sizes_videos [max_slice_nums + 1, 2], a frame's, and
// num_frames_per_video. `numbered`: items have numbers in the text.
absl::StatusOr<std::unique_ptr<MediaFamily>> MakeMiniCpmFrames(std::unique_ptr<MediaFamily> pictures,
                                                               bool numbered, const FamilySource& source);

}  // namespace evenkeel::preprocess
