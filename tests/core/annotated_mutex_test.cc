#include "core/annotated_mutex.h"

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "core/steady_time.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

TEST(SteadyNow, NeverGoesBack) {
  absl::Time last = SteadyNow();
  for (int i = 0; i < 10000; ++i) {
    const absl::Time now = SteadyNow();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(CondVar, AWaitWithoutEndEndsWhenItIsNotified) {
  Mutex mutex;
  CondVar changed;
  std::atomic<uint64_t> turns = 0;
  bool done = false;
  std::thread waiter([&] {
    MutexLock lock(mutex);
    while (!done) {
      ++turns;
      changed.WaitFor(mutex, absl::InfiniteDuration());
    }
  });
  // Waits that return at once because their deadline overflowed would take many turns meanwhile.
  absl::SleepFor(absl::Milliseconds(50));
  {
    MutexLock lock(mutex);
    done = true;
    changed.NotifyAll();
  }
  waiter.join();
  EXPECT_LT(turns, 1000u);
}

TEST(CondVar, AWaitOfNoTimeReturns) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(mutex);
  changed.WaitFor(mutex, absl::ZeroDuration());
  changed.WaitFor(mutex, -absl::InfiniteDuration());
}

TEST(CondVar, AWaitUntilADeadlineEndsThereAndNotBefore) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(mutex);
  const absl::Time deadline = SteadyNow() + absl::Milliseconds(20);
  while (changed.WaitUntil(mutex, deadline)) continue;
  EXPECT_GE(SteadyNow(), deadline);
  EXPECT_FALSE(changed.WaitUntil(mutex, absl::InfinitePast()));
}

TEST(CondVar, AWaitUntilADeadlineFarAwayEndsWhenItIsNotified) {
  Mutex mutex;
  CondVar changed;
  bool done = false;
  std::thread notifier([&] {
    MutexLock lock(mutex);
    done = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(mutex);
    while (!done && changed.WaitUntil(mutex, absl::InfiniteFuture())) continue;
    EXPECT_TRUE(done);
  }
  notifier.join();
}

}  // namespace
}  // namespace evenkeel
