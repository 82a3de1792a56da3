// DeiT: every picture is stretched to one size, then its centre is cropped.
//
// The rules are those of transformers' models/deit/image_processing_deit.py.
#include <utility>

#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {
namespace {

constexpr FixedSizeClass kDeitPictures = {.mean = kHalves,
                                          .std = kHalves,
                                          .size = {.height = 256, .width = 256},
                                          .crop = 224,
                                          .number_is = NumberIs::kSquare};

}  // namespace

MadeFamily MakeDeit(ConfigFile config, const FamilySource& source) {
  return MakeEncoder("deit", kDeitPictures, std::move(config), source);
}

}  // namespace evenkeel::preprocess
