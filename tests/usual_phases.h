// The phases that most tests have: the llm, and the two encoder phases whose names imply their media.
//
// Thread safety: constants.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "core/words.h"

namespace evenkeel {

inline constexpr Phase kVisionPhase("vision", 1, {Medium::kImage, Medium::kVideo});
inline constexpr Phase kAudioPhase("audio", 2, {Medium::kAudio});
inline constexpr std::array kUsualPhases = {Phase::kLlm, kVisionPhase, kAudioPhase};
inline constexpr int kNumUsualPhases = static_cast<int>(kUsualPhases.size());

// The one of kUsualPhases that has the name.
constexpr std::optional<Phase> UsualPhase(std::string_view name) {
  for (const Phase& phase : kUsualPhases) {
    if (phase.name() == name) return phase;
  }
  return std::nullopt;
}
// The one that encodes the medium.
constexpr Phase UsualPhaseOf(Medium medium) { return medium == Medium::kAudio ? kAudioPhase : kVisionPhase; }

}  // namespace evenkeel
