// Reads the limit of open file handles and raises it to the hard limit: sessions, shards and decoder
// processes need more than the usual 1,024.
#include "core/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace evenkeel {
namespace {

// Some libraries allocate a table with an entry per possible handle, so the limit must not be unlimited.
constexpr rlim_t kMaxFileLimit = 1 << 20;

}  // namespace

uint64_t FileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return std::min<uint64_t>(limit.rlim_cur, kMaxFileLimit);
}

uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t wanted = std::min(limit.rlim_max, kMaxFileLimit);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
  return FileLimit();
}

}  // namespace evenkeel
