// Confined child processes that work on calls: hands a call to an idle one, watches its CPU time, and replaces
// those that fail. DecoderPool and PythonPool say what a call is.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "core/status.h"
#include "isolation/child_watch.h"
#include "isolation/decoder_events.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {

// `Spawner` has a Child {pid, socket, spawner}, Spawn(), End(child) and current(), the number of the spawner
// whose children live.
template <typename Spawner>
class ChildPool {
 public:
  // `what` begins the message of a replaced process. `still`: without CPU time before a process counts as
  // hung. `events` may be null and must outlive the pool. `memory`: of inputs and outputs; null: the pool's own.
  ChildPool(std::unique_ptr<Spawner> spawner, const char* what, absl::Duration still, DecoderEvents* events,
            std::shared_ptr<SharedMemory> memory = nullptr)
      : spawner_(std::move(spawner)),
        what_(what),
        still_(still),
        events_(events),
        memory_(memory != nullptr ? std::move(memory) : SharedMemory::Make()) {}

  Spawner& spawner() const { return *spawner_; }
  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }
  // Processes replaced since the start.
  uint64_t num_replaced() const { return num_replaced_; }
  // Notifies `events`, too, of replaced processes from now on; null: no longer. It must live until then.
  void CountInto(DecoderEvents* events) { counter_ = events; }

  // Ends all calls, now and from now on, with Cancelled, so that a worker can end while a process stands still.
  void Abandon() { abandoned_ = true; }

  // Makes one process, so that a machine that forbids to confine them fails at the start.
  absl::Status MakeFirst() {
    EVENKEEL_ASSIGN_OR_RETURN(Process first, Take());
    GiveBack(std::move(first));
    return absl::OkStatus();
  }

  // Runs one call on an idle process. `send(socket, files)` sends it with `files` and, after them, the file of
  // an output of `output_bytes` (0: none), and returns a status. `receive(socket)` reads the reply and returns
  // nothing, or the reason why the process is given up ("": that of its end). Internal: the process was
  // replaced because of what it did. Unavailable: it was killed or stopped by others, or none can be made. The
  // latter, and a process that stood still, are failures of the machine (core/failure.h). Cancelled: the pool
  // was abandoned.
  template <typename Send, typename Receive>
  absl::Status Call(const std::vector<int>& files, uint64_t output_bytes, absl::Duration cpu_budget,
                    Send send, Receive receive, SharedMemory::Block* output) {
    if (abandoned_) return AbandonedError();
    absl::StatusOr<Process> process = Begin(files, output_bytes, send, output);
    // An error here means that the process ended while it was idle, so the call gets a second one.
    if (absl::IsInternal(process.status()) || absl::IsUnavailable(process.status()))
      process = Begin(files, output_bytes, send, output);
    // No process has received the call: the machine has no process or no memory for one.
    EVENKEEL_RETURN_IF_ERROR(WithKind(process.status(), FailureKind::kMachine));
    const int socket = process->child.socket.get();
    std::string reason = WaitForReply(process->child.pid, socket, cpu_budget, still_, abandoned_);
    if (abandoned_ && !reason.empty()) {
      memory_->Forget(process->writer);
      (void)spawner_->End(process->child);
      return AbandonedError();
    }
    if (!reason.empty()) return Replace(*std::move(process), std::move(reason));
    if (std::optional<std::string> given_up = receive(socket); given_up.has_value())
      return Replace(*std::move(process), *std::move(given_up));
    GiveBack(*std::move(process));
    return absl::OkStatus();
  }

 private:
  struct Process {
    typename Spawner::Child child;
    SharedMemory::Writer writer = 0;
  };

  absl::Status AbandonedError() const {
    return absl::CancelledError(absl::StrCat(what_, ": the worker ends"));
  }

  absl::StatusOr<Process> Spawn() {
    Process process;
    EVENKEEL_ASSIGN_OR_RETURN(process.child, spawner_->Spawn());
    process.writer = memory_->NewWriter();
    return process;
  }

  absl::StatusOr<Process> Take() {
    std::vector<Process> ended;
    std::optional<Process> found;
    {
      MutexLock lock(mutex_);
      while (!idle_.empty() && !found.has_value()) {
        Process process = std::move(idle_.back());
        idle_.pop_back();
        if (process.child.spawner == spawner_->current()) {
          found = std::move(process);
        } else {
          ended.push_back(std::move(process));  // it ended with its spawner
        }
      }
    }
    for (const Process& process : ended) memory_->Forget(process.writer);
    if (found.has_value()) return *std::move(found);
    return Spawn();
  }

  void GiveBack(Process process) {
    MutexLock lock(mutex_);
    idle_.push_back(std::move(process));
  }

  // Sends the call to an idle process. Internal or Unavailable: it ended, and was replaced.
  template <typename Send>
  absl::StatusOr<Process> Begin(std::vector<int> files, uint64_t output_bytes, Send& send,
                                SharedMemory::Block* output) {
    EVENKEEL_ASSIGN_OR_RETURN(Process process, Take());
    if (output_bytes > 0) {
      absl::StatusOr<SharedMemory::Block> block = memory_->AllocateFor(process.writer, output_bytes);
      if (!block.ok()) {
        GiveBack(std::move(process));
        return block.status();
      }
      *output = *std::move(block);
      files.push_back(memory_->Find(output->bytes())->fd);
    }
    const absl::Status sent = send(process.child.socket.get(), files);
    if (sent.ok()) return process;
    if (output != nullptr) *output = SharedMemory::Block();
    return Replace(std::move(process), "");
  }

  absl::Status Replace(Process process, std::string reason) {
    memory_->Forget(process.writer);
    const bool stopped = reason == "still" && IsStopped(process.child.pid);
    const int ended = spawner_->End(process.child);
    const std::string how = DescribeEnd(ended);
    if (reason.empty()) reason = ReasonOf(ended);
    ++num_replaced_;
    for (DecoderEvents* events : {events_, counter_.load()}) {
      if (events != nullptr) events->OnDecoderReplaced(reason, how);
    }
    absl::StatusOr<Process> next = Spawn();  // so that the next item need not wait for a process
    if (next.ok()) GiveBack(*std::move(next));
    return ReplacedError(absl::StrCat(what_, " was replaced: ", reason, " (", how, ")"), reason, stopped);
  }

  const std::unique_ptr<Spawner> spawner_;
  const char* const what_;
  const absl::Duration still_;
  DecoderEvents* const events_;
  const std::shared_ptr<SharedMemory> memory_;
  std::atomic<DecoderEvents*> counter_{nullptr};
  std::atomic<uint64_t> num_replaced_{0};
  std::atomic<bool> abandoned_{false};
  Mutex mutex_;
  std::vector<Process> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::isolation
