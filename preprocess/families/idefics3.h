// Idefics3 and SmolVLM: the successive sizes that a picture is resized to.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/families.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

// The picture's shape with a longest side of `longest` pixels, at most 4096; the other side is made even.
ImageSize Idefics3Size(ImageSize picture, uint32_t longest);

// The size in whole tiles of `tile` pixels that the resized picture is stretched to.
ImageSize Idefics3Canvas(ImageSize resized, uint32_t tile);

// The pictures of a folder, and what their tiles have.
struct Idefics3Pictures {
  std::unique_ptr<MediaFamily> pictures;
  uint32_t tokens_per_tile = 0;
  uint32_t patch = 14;  // side of an encoder's patch in pixels
};
// Reads and finishes `config`, the image processor's file, and the processor's own. InvalidArgument: a wrong value or
// an unknown key.
absl::StatusOr<Idefics3Pictures> ReadIdefics3(ConfigFile config, const FamilySource& source);

// The member longest_edge of the size `key`, the only one that it may have. InvalidArgument: another.
absl::StatusOr<uint32_t> LongestEdge(ConfigFile& config, std::string_view key, uint32_t fallback);

}  // namespace evenkeel::preprocess
