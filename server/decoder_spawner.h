// The process that decoder processes are forked from.
//
// It is forked from the worker before the worker has threads, holds the loaded processor and nothing else,
// and never sees a medium. A decoder forked from it is ready within milliseconds, with the processor's tables
// in place. It ends with the worker, and the decoders with it.
//
//   EVENKEEL_ASSIGN_OR_RETURN(auto spawner, DecoderSpawner::Start(*processor, 2ull << 30));
//   EVENKEEL_ASSIGN_OR_RETURN(DecoderSpawner::Child child, spawner->Spawn());
//   ... calls over child.socket ...
//   EVENKEEL_ASSIGN_OR_RETURN(int status, spawner->End(child.pid));   // as waitpid says
//
// Thread safety: Spawn and End may be called from many threads.
#pragma once

#include <sys/types.h>

#include <memory>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "preprocess/processor.h"
#include "server/decoder_message.h"

namespace evenkeel {

class DecoderSpawner {
 public:
  struct Child {
    pid_t pid = -1;
    Handle socket;
  };

  // Waits for the spawner to end; its decoders end with it.
  ~DecoderSpawner();

  // To be called while the process has one thread. `processor` is what decoders use: a copy, as it is now.
  // `memory_bytes`: what each may allocate. FailedPrecondition: there are threads.
  static absl::StatusOr<std::unique_ptr<DecoderSpawner>> Start(const Processor& processor,
                                                               uint64_t memory_bytes);

  // Unavailable: the spawner is gone, or no process can be made; FailedPrecondition: it cannot be confined.
  absl::StatusOr<Child> Spawn();
  // Kills the child, should it still run, and says how it ended. Unavailable: the spawner is gone.
  absl::StatusOr<int> End(pid_t child);

 private:
  DecoderSpawner(pid_t pid, Handle socket) : pid_(pid), socket_(std::move(socket)) {}

  const pid_t pid_;
  Mutex mutex_;
  Handle socket_;  // one exchange at a time: used under mutex_
};

}  // namespace evenkeel
