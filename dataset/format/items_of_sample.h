// Adds to the facts of a picture how many pictures its sample has: some processors cut a picture differently
// if there are several.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "dataset/format/sample_places.h"

namespace evenkeel::dataset {

// Sets num_frames of every picture's facts, which a picture has no use for, to the number of pictures of the
// sample. It is known wherever the sample is, and never stored with the item.
inline void CountPicturesOfSample(std::vector<ItemPlace>& items) {
  uint32_t pictures = 0;
  for (const ItemPlace& item : items) pictures += item.facts.medium == Medium::kImage;
  for (ItemPlace& item : items) {
    if (item.facts.medium == Medium::kImage) item.facts.num_frames = pictures;
  }
}

}  // namespace evenkeel::dataset
