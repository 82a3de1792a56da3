// Reads EVENKEEL_CPU once and compares it with the instruction sets of the processor.
#include "core/cpu.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"

namespace evenkeel {
namespace {

constexpr CpuLevel kLevels[] = {CpuLevel::kBaseline, CpuLevel::kAvx2, CpuLevel::kFastest};

// The level that the environment asks for. It is read once, since code that has chosen its instructions must
// not see another choice later.
const absl::StatusOr<CpuLevel>& Asked() {
  static const auto* const asked = [] {
    const char* name = std::getenv("EVENKEEL_CPU");
    const std::string_view word = name == nullptr ? "" : name;
    return new absl::StatusOr<CpuLevel>(word.empty() ? CpuLevel::kFastest : CpuLevelFromName(word));
  }();
  return *asked;
}

}  // namespace

std::string_view CpuLevelName(CpuLevel level) {
  constexpr std::string_view kNames[] = {"baseline", "avx2", "fastest"};
  return kNames[static_cast<size_t>(level)];
}

absl::StatusOr<CpuLevel> CpuLevelFromName(std::string_view name) {
  std::vector<std::string> names;
  for (const CpuLevel level : kLevels) {
    if (CpuLevelName(level) == name) return level;
    names.emplace_back(CpuLevelName(level));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("EVENKEEL_CPU: unknown instructions '", ShortText(name), "'; nearest is '",
                   Nearest(name, names), "' (known are baseline, avx2 and fastest, which masks nothing)"));
}

CpuLevel AllowedCpuLevel() { return Asked().value_or(CpuLevel::kFastest); }

bool MayUseAvx2() {
#ifdef __x86_64__
  static const bool may = MayUseFasterInstructions() && __builtin_cpu_supports("avx2");
  return may;
#else
  return false;
#endif
}

// The parts of AVX-512 that the code here uses: foundation, bytes and words, doublewords, and vectors of 128
// and 256 bits.
bool MayUseAvx512() {
#ifdef __x86_64__
  static const bool may = MayUseAvx2() && AllowedCpuLevel() == CpuLevel::kFastest &&
                          __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return may;
#else
  return false;
#endif
}

absl::Status CheckCpuLevel() { return Asked().status(); }

}  // namespace evenkeel
