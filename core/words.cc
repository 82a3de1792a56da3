#include "core/words.h"

namespace evenkeel {

std::string_view MediumName(Medium medium) {
  constexpr std::string_view kNames[] = {"text", "image", "video", "audio"};
  return kNames[static_cast<size_t>(medium)];
}

std::string_view PhaseName(Phase phase) {
  constexpr std::string_view kNames[] = {"llm", "vision", "audio"};
  return kNames[static_cast<size_t>(phase)];
}

std::optional<Phase> PhaseFromName(std::string_view name) {
  for (Phase phase : kAllPhases) {
    if (PhaseName(phase) == name) return phase;
  }
  return std::nullopt;
}

}  // namespace evenkeel
