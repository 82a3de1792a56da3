// Adds to the items of a sample what is known wherever the sample is, and is not stored with each: how many pictures
// the sample has, since some processors cut a picture differently if there are several, and the folder of its files.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dataset/format/media_file.h"
#include "dataset/format/sample_places.h"

namespace evenkeel::dataset {

// Sets pictures_in_sample of every picture's facts. It is known wherever the sample is. Each sequence of a pair has half
// of the items.
inline void CountPicturesOfSample(TextForm form, std::vector<ItemPlace>& items) {
  uint32_t pictures = 0;
  for (const ItemPlace& item : items) pictures += item.facts.medium == Medium::kImage;
  if (IsPair(form)) pictures /= 2;
  for (ItemPlace& item : items) {
    if (item.facts.medium == Medium::kImage) item.facts.pictures_in_sample = pictures;
  }
}

// Makes the names of files that are items paths for ByteSource.
inline void LocateFiles(std::string_view folder, std::vector<ItemPlace>& items) {
  for (ItemPlace& item : items) {
    if (!item.file.empty()) item.file = MediaPath(folder, item.file);
  }
}

}  // namespace evenkeel::dataset
