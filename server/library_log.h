// Turns log lines of libraries into our events: {"event":"grpc","message":...,"where":"file:line"}; "ucx"
// likewise.
//
// Thread safety: call it before other threads use these libraries.
#pragma once

namespace evenkeel::server {

// For programs that log with LogEvent. If UCX_LOG_FILE is set, UCX's messages stay in that file.
// GRPC_VERBOSITY and UCX_LOG_LEVEL set the amount.
void LogLibraries();

}  // namespace evenkeel::server
