// Keeps large freed blocks in the process instead of returning them to the kernel. glibc raises two
// thresholds when large blocks are freed; here they are fixed at the highest values that they reach.
#include "core/kept_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <string_view>

namespace evenkeel {

void KeepFreedMemory() {
#ifdef __GLIBC__
  // A user who sets malloc tunables decides.
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos)
    return;
  mallopt(M_MMAP_THRESHOLD, kMaxKeptHeapBytes / 2);  // the largest that glibc takes
  mallopt(M_TRIM_THRESHOLD, kMaxKeptHeapBytes);
#endif
}

}  // namespace evenkeel
