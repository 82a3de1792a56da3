// ViT: every picture becomes one size, whatever its shape. The image processor of vision encoders that are
// trained alone: ViT, DINO, MAE, I-JEPA, Swin.
//
// The rules are those of transformers' models/vit/image_processing_vit.py.
#include "core/status.h"
#include "preprocess/families.h"
#include "preprocess/fixed_size.h"

namespace evenkeel {
namespace {

constexpr FixedSizeClass kVitPictures = {
    kHalves, kHalves, {.height = 224, .width = 224}, 0, ResizeFilter::kBilinear, NumberIs::kSquare};

}  // namespace

MadeFamily MakeVit(ConfigFile config, const FamilySource& source) {
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(FixedSize fixed, ReadFixedSize(config, source.spec, kVitPictures));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.folder));
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(source.folder, 16));
  return MakeFixedSize("vit", fixed, patch, /*extra_tokens=*/0, source);
}

}  // namespace evenkeel
