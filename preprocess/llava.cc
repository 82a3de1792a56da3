// LLaVA-1.5: CLIP's picture, cropped at the centre as the published processor does, or padded to a square
// with the mean colour as the model was trained (`do_pad` of LlavaImageProcessor, or the original
// checkpoint's `image_aspect_ratio`).
//
// The rules are those of transformers' models/llava/{image_processing_llava,processing_llava}.py.
#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families.h"
#include "preprocess/fixed_size.h"

namespace evenkeel {
namespace {

// Placeholders beyond the patches: the class token, unless the model leaves it out.
absl::StatusOr<int32_t> ExtraTokens(ConfigFile& outer, ConfigFile& model) {
  auto extra = static_cast<int32_t>(outer.Uint("num_additional_image_tokens", 1, 0, 16));
  std::string strategy = model.Text("vision_feature_select_strategy", "default");
  strategy = outer.Text("vision_feature_select_strategy", strategy);
  if (strategy == "default") return extra - 1;
  if (strategy == "full") return extra;
  return outer.Error("vision_feature_select_strategy",
                     absl::StrCat("'", strategy, "' is not implemented; default and full are"));
}

}  // namespace

MadeFamily MakeLlava(ConfigFile config, const FamilySource& source) {
  const bool own_processor = config.Text("image_processor_type", "").starts_with("Llava");
  EVENKEEL_ASSIGN_OR_RETURN(FixedSize fixed, ReadCropped(config, source.spec));
  if (own_processor) {
    fixed.pad_to_square = config.Flag("do_pad", false);
  } else {
    config.Pin("do_pad", false);
  }
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadIfThere(source.folder, "config.json"));
  fixed.pad_to_square |= model.Text("image_aspect_ratio", "") == "pad";
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(model, 14));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.folder, "processor_config.json"));
  patch = static_cast<uint32_t>(outer.Uint("patch_size", patch, 1, 256));
  EVENKEEL_ASSIGN_OR_RETURN(int32_t extra, ExtraTokens(outer, model));
  fixed.placeholder = outer.Text("image_token", fixed.placeholder);
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  return MakeFixedSize("llava", fixed, patch, extra, source);
}

}  // namespace evenkeel
