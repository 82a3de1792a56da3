// Checks that the process has enough file handles left for what it is about to open.
//
// Some libraries end the process when they get no handle (UCX), or stop listening permanently (UCX, gRPC). So
// their need is checked in advance.
//
// Thread safety: a function without state. Other threads may open handles at the same time, so ask for more
// than is needed.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace evenkeel::transport {

// ResourceExhausted if fewer than `handles` are left below the limit (RLIMIT_NOFILE). The message begins with
// `what` and contains the number needed and how to raise the limit.
absl::Status CheckFileHandles(int handles, std::string_view what);

}  // namespace evenkeel::transport
