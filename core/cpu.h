// Which instructions a process may choose from.
//
// Code for faster instruction sets computes the same bytes as the portable code next to it. EVENKEEL_CPU in
// the environment keeps a process to the instructions of an older processor, so that this can be seen:
// `baseline` to what every processor of its architecture has, `avx2` to that and AVX2; `fastest`, or no word,
// to nothing.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel {

enum class CpuLevel : uint8_t { kBaseline, kAvx2, kFastest };

// "baseline", "avx2", "fastest".
std::string_view CpuLevelName(CpuLevel level);

// InvalidArgument: another word; the message names the variable and the nearest word.
absl::StatusOr<CpuLevel> CpuLevelFromName(std::string_view name);

// The level of EVENKEEL_CPU, which is read once. An unknown word counts as `fastest`; CheckCpuLevel, which every program
// and library of ours calls first, refuses it.
CpuLevel AllowedCpuLevel();

// InvalidArgument: EVENKEEL_CPU is set to what is no level, so that it would silently mask nothing.
absl::Status CheckCpuLevel();

// Whether code for AVX2 may run: the processor has it, and the environment, of which __builtin_cpu_supports
// knows nothing (glibc's tunables included), allows it.
bool MayUseAvx2();
// The same of AVX-512 with what x86-64-v4 has of it: F, BW, DQ and VL.
bool MayUseAvx512();

// Whether the environment allows AVX2, the least that code of ours asks for: for libraries that look at the
// processor themselves.
inline bool MayUseFasterInstructions() { return AllowedCpuLevel() >= CpuLevel::kAvx2; }

}  // namespace evenkeel
