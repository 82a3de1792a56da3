// What LLaVA-1.5 and LLaVA-NeXT share of their processors' files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"

namespace evenkeel::preprocess {

// What a processor says of placeholders.
struct LlavaTokens {
  uint32_t patch = 14;
  int32_t extra = 0;  // beyond the patches: the encoder's class tokens, unless the model leaves one out
  std::string placeholder = "<image>";
};

// Reads `outer`, the processor's own file, to its end; what that leaves out `model`, the model's config.json,
// says, or it is `class_tokens`. InvalidArgument.
absl::StatusOr<LlavaTokens> ReadLlavaTokens(ConfigFile& outer, ConfigFile& model, uint32_t class_tokens);

}  // namespace evenkeel::preprocess
