// A std::mutex that clang's thread-safety analysis understands.
//
// It brings the annotations along (ABSL_GUARDED_BY and the like), which scripts/thread_safety checks. Not
// absl::Mutex: Debian's Abseil is not instrumented, and under ThreadSanitizer it reports false races.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "core/steady_time.h"

namespace evenkeel {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits may wake early: always wait in a loop on the condition itself.
class CondVar {
 public:
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // At most for `timeout`, which may be infinite; the system's clock may be set meanwhile.
  void WaitFor(Mutex& mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    // Far from where the sum with a clock overflows.
    const auto longest =
        absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24)));
    condition_.wait_until(lock, Clock::now() + longest);
    lock.release();
  }
  // At most until `deadline`, a time of SteadyNow(). False, without a wait: it has passed.
  //
  // Example:
  //     while (!done && changed.WaitUntil(mutex, deadline)) continue;
  bool WaitUntil(Mutex& mutex, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    WaitFor(mutex, left);
    return true;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
#ifdef __SANITIZE_THREAD__
  // GCC's TSan does not intercept pthread_cond_clockwait, which waits on the steady clock.
  using Clock = std::chrono::system_clock;
#else
  using Clock = std::chrono::steady_clock;
#endif
  std::condition_variable condition_;
};

}  // namespace evenkeel
