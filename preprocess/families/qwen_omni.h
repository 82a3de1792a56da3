// Qwen3-Omni: tokens of a clip.
#pragma once

#include <cstdint>

namespace evenkeel::preprocess {

// Tokens that the encoder makes of so many frames: 13 of every hundred, and of what is left an eighth,
// rounded down thrice as Python does (nothing left makes nothing, where C++'s own division would make one).
uint32_t Qwen3OmniTokens(uint32_t frames);

}  // namespace evenkeel::preprocess
