// Waits until a number of events has happened. The count starts at one and can be raised, unlike
// std::latch's. Thread safety: all members may be called from many threads; the waiter may destroy the latch
// as soon as Wait has returned.
#pragma once

#include <cstddef>

#include "core/annotated_mutex.h"

namespace evenkeel::transport {

class Latch {
 public:
  void Expect(size_t more) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    count_ += more;
  }
  void CountDown() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (--count_ == 0) changed_.NotifyAll();
  }
  void Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (count_ > 0) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace evenkeel::transport
