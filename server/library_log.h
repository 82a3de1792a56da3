// What libraries log becomes events of ours: {"event":"grpc","message":...,"where":"file:line"}, and "ucx"
// alike.
//
// Thread safety: call it before other threads use these libraries.
#pragma once

namespace evenkeel::server {

// For programs whose log is LogEvent's. Where the environment names a file for UCX's messages (UCX_LOG_FILE)
// they stay there. GRPC_VERBOSITY and UCX_LOG_LEVEL decide how much there is.
void LogLibraries();

}  // namespace evenkeel::server
