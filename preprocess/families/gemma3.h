// The pictures of Gemma 3 and Gemma 3n in a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"

namespace evenkeel::preprocess {

// Where the two differ.
struct GemmaClass {
  std::string_view family;  // for messages
  uint32_t patch = 14;      // pixels per side of a patch, unless config.json has another number
  std::string in_template;  // what the chat template writes for a picture; empty: a picture's placeholder
};

// A family of fixed-size pictures with image_seq_length placeholders, 256 unless `outer` has another number,
// between line breaks. Finishes `outer`, the processor's own file. InvalidArgument: a wrong value or an
// unknown key in it.
MadeFamily MakeGemmaPictures(const GemmaClass& of, const FixedSize& fixed, ConfigFile outer,
                             const FamilySource& source);

}  // namespace evenkeel::preprocess
