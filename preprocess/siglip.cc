// SigLIP: every picture becomes one size, whatever its shape; a square in the published files.
//
// The rules are those of transformers' models/siglip/image_processing_siglip.py.
#include "core/status.h"
#include "preprocess/families.h"
#include "preprocess/fixed_size.h"

namespace evenkeel {

MadeFamily MakeSiglip(ConfigFile config, const FamilySource& source) {
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(FixedSize fixed, ReadFixedSize(config, source.spec, kSiglipPictures));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.folder));
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(source.folder, 16));
  return MakeFixedSize("siglip", fixed, patch, /*extra_tokens=*/0, source);
}

}  // namespace evenkeel
