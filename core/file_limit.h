// How many file handles this process may open.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>

namespace evenkeel {

// Raises the soft limit of file handles (RLIMIT_NOFILE) to the hard one, at most to 1,048,576, and returns
// the limit that then holds. Never lowers it. For programs, first thing in main: a library leaves the limits
// of its process alone. Programs that are started later inherit the limit.
uint64_t RaiseFileLimit();

// The limit that holds now.
uint64_t FileLimit();

}  // namespace evenkeel
