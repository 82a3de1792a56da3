// The consumer's thread and lock: one thread runs the Fetcher, and the trainer's thread waits in Next. All
// events reach the Fetcher through the inbox.
//
// Lock order: the loop's mutex comes before those of the control plane, the transport, the receive memory and
// the inbox. Thread safety: Next, Wait, Seek, next_step, stats and Stop may be called from any thread, but
// one at a time; Run is called from the loop's own thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/consumer.h"
#include "client/fetcher.h"
#include "core/annotated_mutex.h"

namespace evenkeel::client {

class FetchLoop {
 public:
  using Uses = Fetcher::Uses;
  FetchLoop(const ConsumerOptions& options, Pinned pinned, Uses uses);
  FetchLoop(const FetchLoop&) = delete;
  FetchLoop& operator=(const FetchLoop&) = delete;

  // Runs the loop; returns after Stop, when every request has ended and every session is closed.
  void Run();
  void Stop();

  absl::StatusOr<std::shared_ptr<const StepData>> Next();
  bool Wait(absl::Duration at_most);
  void Seek(uint64_t step);
  uint64_t next_step() const;
  ConsumerStats stats() const;

 private:
  // Waits for the head step until `until`, counted as the trainer's wait. Returns true if Next has its
  // answer, which includes that step_timeout has passed.
  bool WaitForHead(absl::Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration step_timeout_;
  Inbox* const inbox_;

  mutable Mutex mutex_;
  CondVar decided_;  // signalled when the head step is decided, and on Stop
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // Deadline for the head step; set by the first wait for it.
  absl::Time wait_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  Fetcher fetcher_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::client
