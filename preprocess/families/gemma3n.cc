// Gemma 3n: SigLIP's picture with a fixed number of tokens between line breaks. Its audio is not implemented.
//
// The rules are those of transformers' models/gemma3n/processing_gemma3n.py.
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {

MadeFamily MakeGemma3n(ConfigFile config, const FamilySource& source) {
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(const FixedSize fixed, ReadFixedSize(config, source.spec, kSiglipPictures));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  const auto tokens = static_cast<uint32_t>(outer.Uint("image_seq_length", 256, 1, 1 << 16));
  outer.NotNull({"image_seq_length"});
  outer.Inert({"audio_seq_length"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t patch, VisionPatchSize(source.checkpoint, 16));
  const MediumStyle style{.begin = "<start_of_image>",
                          .placeholder = "<image_soft_token>",
                          .end = "<end_of_image>",
                          .before = "\n\n",
                          .after = "\n\n"};
  return MakeFixedSize("gemma3n", fixed, patch, {tokens, style}, source);
}

}  // namespace evenkeel::preprocess
