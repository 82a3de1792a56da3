// Counts this process's file handles in /proc/self/fd.
#include "transport/file_handles.h"

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace evenkeel::transport {

absl::Status CheckFileHandles(int handles, std::string_view what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return absl::OkStatus();
  const uint64_t allowed = limit.rlim_cur;
  uint64_t open = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  // Without /proc the count is unknown. Any other error means that no handle was left to open the directory.
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  if (error) {
    open = allowed;
  } else {
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++open;
  }
  if (open + handles <= allowed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(std::string(what), " needs ", handles,
                                                   " file handles, and ", open, " of ", allowed,
                                                   " are open; allow ", open + handles,
                                                   " or more (ulimit -n, systemd's LimitNOFILE, the "
                                                   "container runtime's nofile)"));
}

}  // namespace evenkeel::transport
