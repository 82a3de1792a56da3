// Where UCX's own messages go.
//
// Thread safety: call it before other threads use UCX.
#pragma once

namespace evenkeel::transport {

// UCX writes its messages to standard output, which a program that prints results needs for itself: from now
// on they are lines on standard error. Does nothing where the environment names a file for them
// (UCX_LOG_FILE). For programs; a library leaves UCX's messages to the process that it is loaded into.
void LogUcxToStandardError();

}  // namespace evenkeel::transport
