// Two of glibc's thresholds, fixed at what they rise to by themselves where large blocks are freed.
#include "core/kept_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <string_view>

namespace evenkeel {

void KeepFreedMemory() {
#ifdef __GLIBC__
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos)
    return;
  mallopt(M_MMAP_THRESHOLD, kMaxKeptHeapBytes / 2);  // the largest that glibc takes
  mallopt(M_TRIM_THRESHOLD, kMaxKeptHeapBytes);
#endif
}

}  // namespace evenkeel
