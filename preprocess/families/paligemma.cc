// PaliGemma: SigLIP's picture with the number of tokens in the image processor's file; the text's BOS token
// follows the last of a sample's pictures.
//
// The rules are those of transformers' models/paligemma/processing_paligemma.py.
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {

MadeFamily MakePaliGemma(ConfigFile config, const FamilySource& source) {
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(const FixedSize fixed, ReadFixedSize(config, source.spec, kSiglipPictures));
  if (fixed.file_tokens == 0) {
    return config.Error("image_seq_length",
                        "is missing; PaliGemmaProcessor takes the number of a picture's "
                        "tokens from it");
  }
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t patch, VisionPatchSize(source.checkpoint, 14));
  return MakeFixedSize("paligemma", fixed, patch,
                       {fixed.file_tokens, {.placeholder = "<image>", .behind_all = "<bos>"}}, source);
}

}  // namespace evenkeel::preprocess
