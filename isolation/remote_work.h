// CPU time that another process uses while this thread waits for it.
//
// The part pool adds it to the CPU time of the thread when it checks whether the thread makes progress.
// Thread safety: a thread adds to its own counter; any thread may read it while that thread lives.
#pragma once

#include <atomic>
#include <cstdint>

namespace evenkeel::isolation {

// The calling thread's counter in nanoseconds. The CPU time that the thread itself uses while it waits is
// subtracted, so the sum of both grows only by work. The counter alone may wrap.
inline std::atomic<uint64_t>& RemoteWork() {
  thread_local std::atomic<uint64_t> nanoseconds{0};
  return nanoseconds;
}

}  // namespace evenkeel::isolation
