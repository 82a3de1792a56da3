// Qwen3-Omni: the number of tokens of a clip, and the settings of clips, which Qwen3-ASR shares.
#pragma once

#include <cstdint>

#include "preprocess/families/speech.h"

namespace evenkeel::preprocess {

// Tokens that the encoder makes of `frames` frames: 13 for every hundred, and an eighth of the rest, rounded
// down three times as in Python (a rest of 0 gives 0, where C++'s division would give 1).
uint32_t Qwen3OmniTokens(uint32_t frames);

// Clips that are neither padded nor cut, between the tokens of Qwen3's audio. `settings`: those of the extractor's
// file.
void SetQwen3Clips(SpeechSettings& settings);

}  // namespace evenkeel::preprocess
