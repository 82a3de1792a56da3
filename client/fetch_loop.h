// The thread and the lock of the consumer: one thread runs the Fetcher, the trainer's thread waits in Next.
// Everything that happens elsewhere arrives through the inbox.
//
// Lock order: the loop's mutex before those of the control plane, the transport, the receive memory and the
// inbox. Thread safety: Next, Wait, Seek, next_step, stats and Stop from any thread but one at a time; Run
// from the loop's own.
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

  // The loop; returns after Stop, with every request ended and every session closed.
  void Run();
  void Stop();

  absl::StatusOr<std::shared_ptr<const StepData>> Next();
  bool Wait(absl::Duration at_most);
  void Seek(uint64_t step);
  uint64_t next_step() const;
  ConsumerStats stats() const;

 private:
  // Waits for the head step until `until`, counted as the trainer's wait. True if Next has its answer, which
  // may be that step_timeout has passed.
  bool WaitForHead(absl::Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration step_timeout_;
  Inbox* const inbox_;

  mutable Mutex mutex_;
  CondVar decided_;  // the head step, or the end
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the head step; set by the first wait for it.
  absl::Time wait_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  Fetcher fetcher_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::client
