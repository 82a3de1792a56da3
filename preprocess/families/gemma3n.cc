// Gemma 3n: SigLIP's picture with a fixed number of tokens between line breaks. (Its clips: gemma_speech.cc.)
//
// The rules are those of transformers' models/gemma3n/processing_gemma3n.py.
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/gemma3.h"
#include "preprocess/families/gemma_speech.h"

namespace evenkeel::preprocess {

MadeFamily MakeGemma3n(ConfigFile config, const FamilySource& source) {
  config.Pin("do_pad", false);
  IgnoreGemmaSpeech(config);
  EVENKEEL_ASSIGN_OR_RETURN(const FixedSize fixed, ReadFixedSize(config, source.spec, kSiglipPictures));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  outer.Inert({"audio_seq_length"});
  return MakeGemmaPictures({.family = "gemma3n", .patch = 16}, fixed, std::move(outer), source);
}

}  // namespace evenkeel::preprocess
