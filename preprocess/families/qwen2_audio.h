// Qwen2-Audio and Qwen2.5-Omni: the number of tokens of a clip.
#pragma once

#include <cstdint>

namespace evenkeel::preprocess {

// Tokens that the encoder makes of `frames` frames: a convolution and a pooling halve them, each rounding
// down. 0: too short.
uint32_t Qwen2AudioTokens(uint32_t frames);

}  // namespace evenkeel::preprocess
