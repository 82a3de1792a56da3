// Sets the variables that fix the arithmetic of libraries, and executes the program again with them.
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

// By these, libraries are talked out of the vector code that they use otherwise.
constexpr std::array kChoices = {"JSIMD_FORCENONE", "SOXR_USE_SIMD", "SOXR_USE_SIMD32", "SOXR_USE_SIMD64"};

// Takes them out of the environment; false where none was there.
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

// Masks fused multiply-add for the C library; false where it is already.
bool MaskFusedMultiplyAdd() {
  const char* value = std::getenv(kTunables);
  std::vector<std::string> tunables;
  if (value != nullptr) tunables = absl::StrSplit(value, ':', absl::SkipEmpty());
  // The last one counts.
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
  // There the loader takes the tunables out of the environment again, and the program would start for ever.
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
