// Keeps libraries that choose their arithmetic by the processor from doing so, for a whole process.
//
// The C library's exp, sin, pow and their like have versions with fused multiply-add, which round
// differently; libopus calls exp for every band of a frame, and nothing but the environment of a process that
// starts decides which version it gets.
//
// Thread safety: call it first thing in main, before there are threads.
#pragma once

#include "absl/status/status.h"

namespace evenkeel {

// Starts the program again with an environment that keeps its libraries to one arithmetic, and returns only
// where nothing was to be done. `argv` as main got it. Same process, same files, a few milliseconds.
// FailedPrecondition: it cannot be started again, or runs with rights of its own (set-user-ID, file
// capabilities), so that the C library ignores that environment.
absl::Status KeepArithmeticTheSame(char** argv);

}  // namespace evenkeel
