// Whether the process has file handles left for what is about to be opened.
//
// For libraries that end the process when they get none (UCX), or stop listening for ever (UCX, gRPC): what
// they need is asked for before.
//
// Thread safety: a function without state. Other threads may open handles at the same time, so ask for more
// than is needed.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace evenkeel::transport {

// ResourceExhausted: fewer than `handles` are left below the limit (RLIMIT_NOFILE). The message begins with
// `what` and says how many are needed and how to raise the limit.
absl::Status CheckFileHandles(int handles, std::string_view what);

}  // namespace evenkeel::transport
