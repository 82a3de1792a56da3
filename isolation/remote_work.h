// CPU time that another process uses while this thread waits for it.
//
// Who watches threads for signs of work (the part pool) counts it as the thread's own.
// Thread safety: a thread adds to its own counter; any thread may read it while that thread lives.
#pragma once

#include <atomic>
#include <cstdint>

namespace evenkeel::isolation {

// The calling thread's counter, in nanoseconds. What the thread itself uses while it waits is subtracted, so
// the sum with the thread's own CPU time only grows by work; the counter alone may wrap.
inline std::atomic<uint64_t>& RemoteWork() {
  thread_local std::atomic<uint64_t> nanoseconds{0};
  return nanoseconds;
}

}  // namespace evenkeel::isolation
