// SigLIP: every picture becomes one size, whatever its shape; a square in the published files.
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
  // Processors that write tokens of their own number say it here; a part that was saved alone is of the one
  // that is known.
  const std::string of = config.Text("processor_class", "");
  if (config.Has("image_seq_length") && of != "SiglipProcessor") {
    if (of.empty()) return MakePaliGemma(std::move(config), source);
    return config.Error("image_seq_length",
                        absl::StrCat("is there for ", of,
                                     ", which writes what is not known here around "
                                     "pictures; of such, PaliGemmaProcessor is implemented"));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckEncoderClass(config, {"SiglipProcessor", "VisionTextDualEncoderProcessor"}));
  return MakeEncoder("siglip", kSiglipPictures, std::move(config), source);
}

}  // namespace evenkeel::preprocess
