// ViT: every picture is stretched to one size. The image processor of vision encoders that are
// trained alone: ViT, DINO, MAE, I-JEPA, Swin.
//
// The rules are those of transformers' models/vit/image_processing_vit.py.
#include <utility>

#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {
namespace {

constexpr FixedSizeClass kVitPictures = {
    kHalves, kHalves, {.height = 224, .width = 224}, 0, ResizeFilter::kBilinear, NumberIs::kSquare};

}  // namespace

MadeFamily MakeVit(ConfigFile config, const FamilySource& source) {
  return MakeEncoder("vit", kVitPictures, std::move(config), source);
}

}  // namespace evenkeel::preprocess
