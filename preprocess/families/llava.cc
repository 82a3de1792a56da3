// LLaVA-1.5: CLIP's picture, cropped at the centre as in the published processor, or padded to a square
// with the mean colour as the model was trained (`do_pad` of LlavaImageProcessor, or the original
// checkpoint's `image_aspect_ratio`). Checkpoints with SigLIP's encoder (llava-interleave) have SigLIP's
// picture.
//
// The rules are those of transformers' models/llava/{image_processing_llava,processing_llava}.py.
#include "preprocess/families/llava.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {
namespace {

// Reads and finishes the file as the image processor that it names would.
absl::StatusOr<FixedSize> ReadPictures(ConfigFile& config, ConfigFile& model, const ProcessorSpec& spec,
                                       bool of_siglip) {
  bool pads = model.Text("image_aspect_ratio", "") == "pad";
  if (config.Choice("image_processor_type", "").starts_with("Llava")) {
    pads |= config.Flag("do_pad", false);
  } else {
    config.Pin("do_pad", false);
  }
  return ReadFixedSize(config, spec, of_siglip ? kSiglipPictures : kClipPictures, pads);
}

}  // namespace

absl::StatusOr<LlavaTokens> ReadLlavaTokens(ConfigFile& outer, ConfigFile& model, uint32_t class_tokens) {
  LlavaTokens out;
  out.patch = VisionPatchSize(model, out.patch);
  out.patch = static_cast<uint32_t>(outer.Uint("patch_size", out.patch, 1, 256));
  out.extra = static_cast<int32_t>(outer.Uint("num_additional_image_tokens", class_tokens, 0, 16));
  out.placeholder = outer.Text("image_token", out.placeholder);
  std::string strategy = model.Text("vision_feature_select_strategy", "default");
  strategy = outer.Text("vision_feature_select_strategy", strategy);
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  if (strategy != "default" && strategy != "full") {
    return outer.Error("vision_feature_select_strategy",
                       absl::StrCat("'", strategy, "' is not implemented; default and full are"));
  }
  if (strategy == "default") --out.extra;
  return out;
}

MadeFamily MakeLlava(ConfigFile config, const FamilySource& source) {
  const bool of_siglip = config.Choice("image_processor_type", "").starts_with("Siglip");
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(FixedSize fixed, ReadPictures(config, model, source.spec, of_siglip));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  EVENKEEL_ASSIGN_OR_RETURN(const LlavaTokens tokens, ReadLlavaTokens(outer, model, of_siglip ? 0 : 1));
  fixed.placeholder = tokens.placeholder;
  fixed.file_tokens = 0;  // the processor computes the number itself
  return MakeFixedSize("llava", fixed, tokens.patch, tokens.extra, source);
}

}  // namespace evenkeel::preprocess
