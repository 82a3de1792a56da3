// The processes that decoder processes are forked from.
//
// Two of them are forked before the worker has threads: the nursery, which only waits, and from it the
// spawner, which forks the decoders. Both have the loaded processor and nothing else, and never read a
// medium. A decoder forked from the spawner is ready within milliseconds, because the processor's tables are
// already in memory. All of them end with the worker. A spawner that is killed or stands still is replaced by
// another one from the nursery; its decoders end with it. If the nursery ends, no process can be made any
// more, and the worker should end.
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
    uint64_t spawner = 0;  // number of the spawner that made it
  };

  // Ends all processes and waits until the nursery has ended.
  ~DecoderSpawner();

  // Call it while the process has one thread. `processor` is what decoders use: a copy of its present
  // state. `memory_bytes`: what each decoder may allocate. `patience`: how long to wait for a process that
  // does not answer. `events` may be null and must outlive the spawner. FailedPrecondition: there are
  // threads.
  static absl::StatusOr<std::unique_ptr<DecoderSpawner>> Start(const preprocess::Processor& processor,
                                                               uint64_t memory_bytes, absl::Duration patience,
                                                               DecoderEvents* events);

  // Unavailable: no process can be made; FailedPrecondition: it cannot be confined. Takes at most a few times
  // `patience`.
  absl::StatusOr<Child> Spawn();
  // Kills the child if it still runs, and returns its wait status: SIGKILL if its spawner is gone.
  int End(const Child& child);

  // The number of the current spawner. Decoders of earlier spawners have ended.
  uint64_t current() const { return current_; }
  // Not OK: the nursery is gone, so no spawner can be made any more. Does not wait.
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
  // Forks a new spawner from the nursery. Unavailable: none can be made now, or ever.
  absl::Status Replace(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Break(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration patience_;
  DecoderEvents* const events_;
  const pid_t nursery_pid_;
  std::atomic<uint64_t> current_{0};
  std::atomic<bool> is_broken_{false};
  mutable Mutex mutex_;
  // One exchange at a time with each of them.
  Process nursery_ ABSL_GUARDED_BY(mutex_);
  Process spawner_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::isolation
