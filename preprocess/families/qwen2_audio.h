// Qwen2-Audio and Qwen2.5-Omni: the number of tokens of a clip, and its place in a sequence.
#pragma once

#include <cstdint>

#include "preprocess/families/speech.h"

namespace evenkeel::preprocess {

// Tokens that the encoder makes of `frames` frames: a convolution and a pooling halve them, each rounding
// down. 0: too short.
uint32_t Qwen2AudioTokens(uint32_t frames);

// Sets the number of tokens, and the tokens around them.
void SetQwen2Clips(SpeechSettings& settings);

}  // namespace evenkeel::preprocess
