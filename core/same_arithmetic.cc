// Fixes the arithmetic of libraries that choose it by the processor, so that all workers make the same bytes.
// Only the environment with which a process starts decides for them, so the program changes its environment
// and executes itself again.
#include "core/same_arithmetic.h"

#ifdef __linux__
#include <sys/auxv.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace evenkeel {
namespace {

// Variables with which a user can switch libraries to other code than they use by default.
constexpr std::array kChoices = {"JSIMD_FORCENONE", "SOXR_USE_SIMD", "SOXR_USE_SIMD32", "SOXR_USE_SIMD64"};

// Removes them from the environment; returns whether there was one.
bool Forget() {
  bool found = false;
  for (const char* name : kChoices) {
    found |= std::getenv(name) != nullptr;
    unsetenv(name);
  }
  return found;
}

#if defined(__x86_64__) && defined(__GLIBC__)
constexpr const char* kTunables = "GLIBC_TUNABLES";
constexpr std::string_view kFeatures = "glibc.cpu.hwcaps=";

// Hides fused multiply-add (FMA) from the C library, whose exp, sin and pow have versions with it that round
// differently. Returns whether the environment changed.
bool MaskFusedMultiplyAdd() {
  const char* value = std::getenv(kTunables);
  std::vector<std::string> tunables;
  if (value != nullptr) tunables = absl::StrSplit(value, ':', absl::SkipEmpty());
  // glibc uses the last setting of a tunable.
  auto features = std::find_if(tunables.rbegin(), tunables.rend(),
                               [](const std::string& tunable) { return tunable.starts_with(kFeatures); });
  if (features == tunables.rend()) {
    tunables.emplace_back(kFeatures);
    features = tunables.rbegin();
  }
  const std::vector<std::string> there = absl::StrSplit(features->substr(kFeatures.size()), ',');
  bool changed = false;
  for (const char* feature : {"-FMA", "-FMA4"}) {
    if (std::find(there.begin(), there.end(), feature) != there.end()) continue;
    absl::StrAppend(&*features, features->ends_with('=') ? "" : ",", feature);
    changed = true;
  }
  if (changed) setenv(kTunables, absl::StrJoin(tunables, ":").c_str(), 1);
  return changed;
}
#else
bool MaskFusedMultiplyAdd() { return false; }
#endif

}  // namespace

absl::Status KeepArithmeticTheSame(char** argv) {
  const bool forgot = Forget(), masked = MaskFusedMultiplyAdd();
  if (!forgot && !masked) return absl::OkStatus();
#ifdef __linux__
  // With AT_SECURE the loader removes the tunables from the environment, so the program would restart itself
  // without end.
  if (getauxval(AT_SECURE) != 0) {
    return absl::FailedPreconditionError(
        "the program has capabilities or an owner's rights of its own (setcap, set-user-ID), and then the C "
        "library does not let its mathematics be kept the same on every processor; take them off the file, "
        "and give what is needed to the process that starts it (ambient capabilities)");
  }
#endif
  execv("/proc/self/exe", argv);
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot start again so that the C library's mathematics are the same on every processor: ",
      std::strerror(errno), "; mount /proc, or start it with GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA,-FMA4"));
}

}  // namespace evenkeel
