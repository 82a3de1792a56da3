// The processes that decoder processes are forked from.
//
// Two are forked from the worker before the worker has threads, one from the other: a nursery, which only
// waits, and from it the spawner, from which decoders are forked. Both hold the loaded processor and nothing
// else, and never see a medium. A decoder forked from the spawner is ready within milliseconds, with the
// processor's tables in place. All of them end with the worker. A spawner that is killed or stands still is
// replaced by another one from the nursery; its decoders end with it. Without the nursery no process can be
// made any more, and the worker should end.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto spawner,
//                               DecoderSpawner::Start(*processor, 2ull << 30, absl::Seconds(10), nullptr));
//     EVENKEEL_ASSIGN_OR_RETURN(DecoderSpawner::Child child, spawner->Spawn());
//     // ... calls over child.socket ...
//     int status = spawner->End(child);  // as waitpid reports it
//
// Thread safety: all members but Start may be called from many threads.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "isolation/decoder_events.h"
#include "isolation/decoder_message.h"
#include "preprocess/processor.h"

namespace evenkeel::isolation {

class DecoderSpawner {
 public:
  struct Child {
    pid_t pid = -1;
    Handle socket;
    uint64_t spawner = 0;  // the how-manieth it is of
  };

  // Ends all processes, and waits for the nursery's end.
  ~DecoderSpawner();

  // To be called while the process has one thread. `processor` is what decoders use: a copy, as it is now.
  // `memory_bytes`: what each may allocate. `patience`: with a process that does not answer. `events` may be
  // null, and must outlive it.
  // FailedPrecondition: there are threads.
  static absl::StatusOr<std::unique_ptr<DecoderSpawner>> Start(const preprocess::Processor& processor,
                                                               uint64_t memory_bytes, absl::Duration patience,
                                                               DecoderEvents* events);

  // Unavailable: no process can be made; FailedPrecondition: it cannot be confined. Takes a few times
  // `patience` at most.
  absl::StatusOr<Child> Spawn();
  // Kills the child, should it still run, and says how it ended: SIGKILL where its spawner is gone.
  int End(const Child& child);

  // The how-manieth spawner it is; decoders of an earlier one have ended.
  uint64_t current() const { return current_; }
  // Not OK: the nursery is gone, and no spawner can be made any more. Does not wait.
  absl::Status health() const;

 private:
  struct Process {
    pid_t pid = -1;
    Handle socket;
  };

  DecoderSpawner(Process nursery, absl::Duration patience, DecoderEvents* events)
      : patience_(patience), events_(events), nursery_pid_(nursery.pid), nursery_(std::move(nursery)) {}

  absl::StatusOr<Process> Make(const Process& parent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Process> MakeDecoder() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A new spawner from the nursery. Unavailable: none can be made now, or ever.
  absl::Status Replace(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Break(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration patience_;
  DecoderEvents* const events_;
  const pid_t nursery_pid_;
  std::atomic<uint64_t> current_{0};
  std::atomic<bool> is_broken_{false};
  mutable Mutex mutex_;
  // One exchange at a time with each.
  Process nursery_ ABSL_GUARDED_BY(mutex_);
  Process spawner_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::isolation
