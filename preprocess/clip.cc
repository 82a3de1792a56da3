// CLIP: the shorter side resized, then the centre cropped; or a fixed size.
//
// The rules are those of transformers' models/clip/image_processing_clip.py and image_processing_backends.py,
// for the PIL path image_transforms.py.
#include "preprocess/clip.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "preprocess/families.h"
#include "preprocess/fixed_size.h"
#include "preprocess/tiles.h"

namespace evenkeel {

ImageSize ShortestEdgeSize(ImageSize picture, uint32_t edge) {
  const bool upright = picture.width <= picture.height;
  const uint64_t shorter = upright ? picture.width : picture.height;
  const uint64_t longer = upright ? picture.height : picture.width;
  // Python divides two whole numbers, as doubles, and truncates.
  const double exact = static_cast<double>(edge * longer) / static_cast<double>(shorter);
  const auto other = static_cast<uint32_t>(std::min<double>(exact, UINT32_MAX));
  return upright ? ImageSize{edge, other} : ImageSize{other, edge};
}

int32_t CropBegin(uint32_t side, uint32_t crop, Resampler resampler) {
  if (side >= crop) return static_cast<int32_t>((side - crop) / 2);
  const uint32_t missing = crop - side;
  return -static_cast<int32_t>(resampler != Resampler::kAtenU8 ? (missing + 1) / 2 : missing / 2);
}

MadeFamily MakeClip(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(FixedSize fixed, ReadCropped(config, source.spec));
  config.Pin("do_pad", false);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.folder));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadIfThere(source.folder, "config.json"));
  // Its file says CLIP; the tiles that the model is trained on are cut by code of its repository.
  if (model.Text("model_type", "") == "internvl_chat") {
    return model.Error("model_type",
                       "'internvl_chat' cuts its tiles by code of its own, not by the image processor that "
                       "its file names; take the same model's checkpoint whose name ends in -hf");
  }
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(model, 14));
  return MakeFixedSize("clip", fixed, patch, /*extra_tokens=*/0, source);
}

}  // namespace evenkeel
