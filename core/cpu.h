// Which instructions a process may choose from.
//
// Code for faster instruction sets computes the same bytes as the portable code beside it. EVENKEEL_CPU in
// the environment keeps a process to the instructions of an older processor, so that this can be seen:
// `baseline` to what every processor of its architecture has, `avx2` to that and AVX2.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace evenkeel {

enum class CpuLevel : uint8_t { kBaseline, kAvx2, kFastest };

// The environment is read once; another word than these is as none.
inline CpuLevel AllowedCpuLevel() {
  static const CpuLevel level = [] {
    const char* wish = std::getenv("EVENKEEL_CPU");
    const std::string_view word = wish == nullptr ? "" : wish;
    if (word == "baseline") return CpuLevel::kBaseline;
    return word == "avx2" ? CpuLevel::kAvx2 : CpuLevel::kFastest;
  }();
  return level;
}

// As EVENKEEL_CPU says it; `fastest` where it says nothing.
constexpr std::string_view CpuLevelName(CpuLevel level) {
  return level == CpuLevel::kBaseline ? "baseline" : level == CpuLevel::kAvx2 ? "avx2" : "fastest";
}

// Whether AVX2, the least that code of ours asks for, may be used where it is there. Ask it beside
// __builtin_cpu_supports, which knows nothing of the environment (glibc's tunables included).
inline bool MayUseFasterInstructions() { return AllowedCpuLevel() >= CpuLevel::kAvx2; }

}  // namespace evenkeel
