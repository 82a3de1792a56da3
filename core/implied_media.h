// The media that a phase's name implies: in a job whose phase lists none, and in problems and traces of
// lengths, which have no lists. Nothing else asks for a name.
//
// Thread safety: a pure function.
#pragma once

#include <optional>
#include <string_view>

#include "core/words.h"

namespace evenkeel {

// A generator of images, as problems, traces and models of time have it under this name. A job says so itself.
constexpr Phase ImpliedGenerator() {
  Phase phase("generator", 3, {Medium::kImage});
  phase.BecomeGenerator();
  return phase;
}

// The phase with these media, numbered as in a job that has no further phases; nullopt: the name implies
// none.
constexpr std::optional<Phase> PhaseOfImpliedMedia(std::string_view name) {
  constexpr Phase kPhases[] = {Phase::kLlm, Phase("vision", 1, {Medium::kImage, Medium::kVideo}),
                               Phase("audio", 2, {Medium::kAudio})};
  for (const Phase& phase : kPhases) {
    if (phase.name() == name) return phase;
  }
  return std::nullopt;
}

}  // namespace evenkeel
