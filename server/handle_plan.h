// Divides the file handles that the process may open.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(HandlePlan plan,
//                               PlanHandles(FileLimit(), options.max_sessions, /*ucx=*/true));
//
// The lower half of the handle numbers is for connections and sessions; the other half is for shards, parts
// in shared memory, decoder processes and logs, which must never wait for a consumer to leave.
//
// Thread safety: a function without state.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace evenkeel::server {

struct HandlePlan {
  uint32_t max_sessions = 0;
  uint32_t max_connections = 0;  // open connections of the control plane
  uint32_t max_silent = 0;       // connections that have sent nothing yet
  int reserved_from = 0;         // connections with this number or a higher one are closed
};

// Handles budgeted per session, for both planes. Measured: 2 over gRPC, about 7 over UCX. The rest is a
// margin, because connections are replaced and new ones open before the old ones have ended.
inline constexpr uint32_t kHandlesOfGrpcSession = 4;
inline constexpr uint32_t kHandlesOfUcxSession = 12;
inline constexpr uint32_t kDefaultMaxSessions = 4096;

// `limit`: handles that the process may open. `wanted_sessions`: 0 takes as many as fit, at most
// kDefaultMaxSessions. `ucx`: whether sessions may use UCX. InvalidArgument, with all the numbers: the wanted
// sessions do not fit, or not even one does.
absl::StatusOr<HandlePlan> PlanHandles(uint64_t limit, uint32_t wanted_sessions, bool ucx);

}  // namespace evenkeel::server
