// Which instructions a process may choose from.
//
// Code for faster instruction sets computes the same bytes as the portable code beside it.
// EVENKEEL_CPU=baseline in the environment keeps a process to what every processor of its architecture has,
// so that this can be seen.
//
// Thread safety: a plain function.
#pragma once

#include <cstdlib>
#include <string_view>

namespace evenkeel {

// Ask it beside __builtin_cpu_supports, which knows nothing of the environment (glibc's tunables included).
// The environment is read once.
inline bool MayUseFasterInstructions() {
  static const bool may = [] {
    const char* wish = std::getenv("EVENKEEL_CPU");
    return wish == nullptr || std::string_view(wish) != "baseline";
  }();
  return may;
}

}  // namespace evenkeel
