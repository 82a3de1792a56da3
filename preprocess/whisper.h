// Whisper's feature extractor: Whisper itself and Qwen2-Audio.
#pragma once

#include <cstdint>

namespace evenkeel {

// Frames of 10 ms that the extractor's mask counts, of a clip padded to 30 s: one for every 160 samples
// begun.
uint32_t MaskedFrames(uint64_t num_samples);
// Tokens that Qwen2-Audio's encoder makes of so many frames; divisions round down. 0: too short.
uint32_t Qwen2AudioTokens(uint32_t frames);

}  // namespace evenkeel
