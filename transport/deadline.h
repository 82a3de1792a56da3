// The monotonic clock that transports use, and deadlines by it.
//
// Thread safety: a function without state.
#pragma once

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace evenkeel::transport {

using Clock = std::chrono::steady_clock;

// Clock::now() + timeout, clamped to a day, far from overflow; a negative timeout has passed already.
inline Clock::time_point DeadlineAfter(absl::Duration timeout) {
  return Clock::now() + absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24)));
}

}  // namespace evenkeel::transport
