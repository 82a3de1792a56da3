// What was computed of the windows used last, for many threads: it is the same whoever computes it.
//
// Example:
//     if (std::shared_ptr<const Window> kept = recent.Find(number)) return kept;
//     return recent.Keep(number, std::make_shared<const Window>(Compute(number)));
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "core/annotated_mutex.h"

namespace evenkeel::dataset {

template <typename T>
class RecentWindows {
 public:
  explicit RecentWindows(size_t most) : most_(most) {}

  // Null: it is not kept.
  std::shared_ptr<const T> Find(uint64_t window) {
    MutexLock lock(mutex_);
    for (auto it = recent_.begin(); it != recent_.end(); ++it) {
      if (it->first != window) continue;
      recent_.splice(recent_.begin(), recent_, it);
      return it->second;
    }
    return nullptr;
  }

  // Returns `value`.
  std::shared_ptr<const T> Keep(uint64_t window, std::shared_ptr<const T> value) {
    MutexLock lock(mutex_);
    recent_.emplace_front(window, value);
    if (recent_.size() > most_) recent_.pop_back();
    return value;
  }

 private:
  const size_t most_;
  Mutex mutex_;
  std::list<std::pair<uint64_t, std::shared_ptr<const T>>> recent_
      ABSL_GUARDED_BY(mutex_);  // most recently used first
};

}  // namespace evenkeel::dataset
