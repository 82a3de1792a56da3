// SigLIP: every picture is stretched to one size, a square in the published files.
//
// The rules are those of transformers' models/siglip/image_processing_siglip.py.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {

MadeFamily MakeSiglip(ConfigFile config, const FamilySource& source) {
  // image_seq_length marks processors with a fixed number of tokens; without processor_class it is PaliGemma,
  // the only such processor that is implemented.
  const std::string of = config.Text("processor_class", "");
  if (config.Has("image_seq_length") && of != "SiglipProcessor") {
    if (of.empty()) return MakePaliGemma(std::move(config), source);
    return config.Error("image_seq_length", absl::StrCat("is set for ", of,
                                                         ", which is not supported; of the processors "
                                                         "with image_seq_length only PaliGemmaProcessor is"));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckEncoderClass(config, {"SiglipProcessor", "VisionTextDualEncoderProcessor"}));
  return MakeEncoder("siglip", kSiglipPictures, std::move(config), source);
}

}  // namespace evenkeel::preprocess
