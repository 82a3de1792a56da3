// Locks, waits and deadlines of the consumer; the Fetcher makes all decisions.
#include "client/fetch_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/steady_time.h"

namespace evenkeel::client {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);  // without events: the resolution of all timeouts

}  // namespace

FetchLoop::FetchLoop(const ConsumerOptions& options, Pinned pinned, Uses uses)
    : step_timeout_(options.step_timeout),
      inbox_(uses.inbox),
      fetcher_(options, std::move(pinned), std::move(uses)) {}

void FetchLoop::Run() {
  for (;;) {
    // The inbox is emptied without the lock, so that posting threads and the trainer never wait for each
    // other.
    std::vector<Event> events = inbox_->Take(kTick);
    MutexLock lock(mutex_);
    const absl::Time now = SteadyNow();
    for (Event& event : events) fetcher_.Take(std::move(event), now);
    if (stop_) {
      fetcher_.Close();
      decided_.NotifyAll();
      return;
    }
    fetcher_.Tick(now);
    if (fetcher_.HeadIsDecided()) decided_.NotifyAll();
  }
}

void FetchLoop::Stop() {
  MutexLock lock(mutex_);
  stop_ = true;
  inbox_->Post({0, Woken()});
}

bool FetchLoop::WaitForHead(absl::Time until) {
  const absl::Time begin = SteadyNow();
  // Repeated Waits for one step share one deadline: a caller that polls cannot extend step_timeout.
  if (wait_deadline_ == absl::InfiniteFuture()) wait_deadline_ = begin + step_timeout_;
  fetcher_.wait().Begin(begin);
  while (!stop_ && !fetcher_.HeadIsDecided() && decided_.WaitUntil(mutex_, std::min(until, wait_deadline_))) {
    continue;
  }
  const absl::Time now = SteadyNow();
  fetcher_.wait().End(now);
  return stop_ || fetcher_.HeadIsDecided() || now >= wait_deadline_;
}

bool FetchLoop::Wait(absl::Duration at_most) {
  MutexLock lock(mutex_);
  return WaitForHead(SteadyNow() + at_most);
}

absl::StatusOr<std::shared_ptr<const StepData>> FetchLoop::Next() {
  MutexLock lock(mutex_);
  WaitForHead(absl::InfiniteFuture());
  wait_deadline_ = absl::InfiniteFuture();
  if (stop_) return absl::CancelledError("the consumer was closed");
  return fetcher_.TakeHead(SteadyNow());
}

void FetchLoop::Seek(uint64_t step) {
  MutexLock lock(mutex_);
  fetcher_.Seek(step);
  wait_deadline_ = absl::InfiniteFuture();
  inbox_->Post({0, Woken()});
}

uint64_t FetchLoop::next_step() const {
  MutexLock lock(mutex_);
  return fetcher_.head();
}

ConsumerStats FetchLoop::stats() const {
  MutexLock lock(mutex_);
  return fetcher_.stats(SteadyNow());
}

}  // namespace evenkeel::client
