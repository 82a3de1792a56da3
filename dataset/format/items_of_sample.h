// Adds to the facts of a picture how many pictures its sample has: some processors cut a picture differently
// if there are several.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "dataset/format/sample_places.h"

namespace evenkeel::dataset {

// Sets pictures_in_sample of every picture's facts. It is known wherever the sample is.
inline void CountPicturesOfSample(std::vector<ItemPlace>& items) {
  uint32_t pictures = 0;
  for (const ItemPlace& item : items) pictures += item.facts.medium == Medium::kImage;
  for (ItemPlace& item : items) {
    if (item.facts.medium == Medium::kImage) item.facts.pictures_in_sample = pictures;
  }
}

}  // namespace evenkeel::dataset
