// BLIP, BLIP-2 and InstructBLIP: every picture is stretched to one size.
//
// The rules are those of transformers' models/blip/image_processing_blip.py.
#include <utility>

#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {
namespace {

constexpr FixedSizeClass kBlipPictures = {.mean = kClipMean,
                                          .std = kClipStd,
                                          .size = {.height = 384, .width = 384},
                                          .number_is = NumberIs::kSquare};

}  // namespace

MadeFamily MakeBlip(ConfigFile config, const FamilySource& source) {
  return MakeEncoder("blip", kBlipPictures, std::move(config), source);
}

}  // namespace evenkeel::preprocess
