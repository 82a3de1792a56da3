// SigLIP: every picture becomes one size, whatever its shape; a square in the published files.
//
// The rules are those of transformers' models/siglip/image_processing_siglip.py.
#include <utility>

#include "preprocess/families.h"
#include "preprocess/fixed_size.h"

namespace evenkeel {

MadeFamily MakeSiglip(ConfigFile config, const FamilySource& source) {
  // A part that was saved alone, of the one processor that needs this.
  if (config.Text("processor_class", "").empty() && config.Has("image_seq_length")) {
    return MakePaliGemma(std::move(config), source);
  }
  return MakeEncoder("siglip", kSiglipPictures, std::move(config), source);
}

}  // namespace evenkeel
