// What LLaVA-1.5 and LLaVA-NeXT share of their processors' configuration.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"

namespace evenkeel::preprocess {

// A processor's settings of placeholders.
struct LlavaTokens {
  uint32_t patch = 14;
  int32_t extra = 0;  // in addition to the patches: the encoder's class tokens, unless the model drops one
  std::string placeholder = "<image>";
};

// Reads and finishes `outer`, the processor's own file. Values that it lacks come from `model`, the model's
// config.json, else the extra tokens are `class_tokens`. InvalidArgument: a wrong value or an unknown key.
absl::StatusOr<LlavaTokens> ReadLlavaTokens(ConfigFile& outer, ConfigFile& model, uint32_t class_tokens);

}  // namespace evenkeel::preprocess
