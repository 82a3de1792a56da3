// Qwen3-Omni: the number of tokens of a clip.
#pragma once

#include <cstdint>

namespace evenkeel::preprocess {

// Tokens that the encoder makes of `frames` frames: 13 for every hundred, and an eighth of the rest, rounded
// down three times as in Python (a rest of 0 gives 0, where C++'s division would give 1).
uint32_t Qwen3OmniTokens(uint32_t frames);

}  // namespace evenkeel::preprocess
