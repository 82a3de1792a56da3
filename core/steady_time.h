// The time that deadlines, waits and durations are measured by. It never jumps, whatever is done to the
// system's clock: a correction by an hour must neither end every deadline at once nor keep a wait from
// ending.
//
// Example:
//     const absl::Time deadline = SteadyNow() + timeout;
//     while (!done && changed.WaitUntil(mutex, deadline)) continue;  // core/annotated_mutex.h
//
// What it is not: a date. Its zero is some moment of this machine's past, so it means nothing in a log, in a
// file or to another process, and must not be compared with absl::Now().
//
// Thread safety: a function without state.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace evenkeel {

inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace evenkeel
