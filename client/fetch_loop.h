// The loop that fetches: describes the next steps, takes receive memory in step order, asks workers for
// parts, and replaces workers that refuse, fail, disconnect or stop making progress.
//
// One thread runs it; everything that happens elsewhere arrives through the inbox. The trainer's thread waits
// in Next. Clocks and random jitter decide whom to ask and when, never what a step contains: parts are in the
// description's order, whatever the order of their arrival.
//
// Lock order: the loop's mutex before those of the control plane, the transport, the receive memory and the
// inbox. Thread safety: Next, Seek, stats and Stop from any thread but one at a time; the rest is the loop's
// own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/consumer.h"
#include "client/control_plane.h"
#include "client/inbox.h"
#include "client/part_fetch.h"
#include "client/receive_memory.h"
#include "client/worker_table.h"
#include "core/annotated_mutex.h"
#include "transport/transport.h"

namespace evenkeel {

// What all workers of a run must agree on.
struct Pinned {
  uint32_t stream_version = 0;
  std::string stream_digest;
  std::string layout_digest;
};

// Why a worker may not serve this run, or OK. FailedPrecondition names both values.
absl::Status CheckPinned(const WorkerDescription& worker, const Pinned& pinned);

class FetchLoop {
 public:
  // What the loop uses; all outlive it.
  struct Uses {
    Inbox* inbox = nullptr;
    ControlPlane* control = nullptr;
    transport::Sink* sink = nullptr;
    std::shared_ptr<ReceiveMemory> memory;
    std::function<void()> look_for_workers;  // asks for a new list of endpoints, soon
    std::function<void(const std::string&)> log;
    std::function<absl::Status(const std::string&)> may_dial;  // an endpoint, before it is connected
  };
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
  struct StepFetch {
    uint64_t step = 0;
    std::optional<StepDescription> description;
    CallId describe_call = 0;
    std::string describe_endpoint;
    absl::Duration patience;  // doubles with every description that came too late
    absl::Time describe_not_before = absl::InfinitePast();
    std::map<std::string, absl::Time> describe_avoid;
    std::vector<FailedAttempt> describe_failed;
    std::vector<PartFetch> parts;
    size_t num_complete = 0;
    bool granted = false;  // every part has had its memory
    absl::Status error;

    bool ready() const { return description.has_value() && num_complete == parts.size(); }
  };
  // The attempt that a call or a request belongs to.
  struct AttemptRef {
    StepFetch* step = nullptr;
    PartFetch* part = nullptr;
    size_t index = 0;
    Attempt& attempt() const { return part->attempts[index]; }
  };

  // Waits for the head step until `until`, counted as the trainer's wait. True where Next has its answer,
  // which may be that step_timeout has passed.
  bool WaitForHead(absl::Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HeadIsDecided() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // fetch_loop.cc: what to do next.
  void Tick(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExtendWindow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForDescription(StepFetch& step, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GrantMemory(StepFetch& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForParts(StepFetch& step, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AskForCopy(StepFetch& step, PartFetch& part, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendRequest(StepFetch& step, PartFetch& part, Worker& worker, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReplaceStale(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReplaceStaleAttempt(StepFetch& step, PartFetch& part, size_t index, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All of the trainer's waiting, with what goes on now.
  double WaitSeconds(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes what no worker was told yet for this one, and returns all that its session is told.
  double TellWait(Worker& worker, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where requests do not carry it, since there is nothing to ask for.
  void ReportWait(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseIdleSessions(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WhatIsAwaited(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const StepData> Deliver(StepFetch& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropSteps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // fetch_events.cc: what happened.
  void Take(Event event, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeOpened(CallId call, const OpenedSession& opened, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeDescription(CallId call, StepDescription description, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakePartEvent(AttemptRef ref, const PartEvent& event, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeRefusal(AttemptRef ref, double retry_after_seconds, const std::string& reason, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeFailure(AttemptRef ref, const std::string& message, const std::string& exclude, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeCallEnded(CallId call, const absl::Status& status, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeStreamEnded(AttemptRef ref, const absl::Status& status, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeDescribeFailed(StepFetch& step, const absl::Status& status, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeReceived(const Received& received, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeBytes(AttemptRef ref, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeEndpoints(const EndpointsChanged& changed, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // fetch_sessions.cc: sessions and attempts begin and end.
  void OpenSession(Worker& worker, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the worker's session and all its attempts. A lost worker is counted and left alone for a while.
  void LoseWorker(Worker& worker, const std::string& reason, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RejectWorker(Worker& worker, const std::string& reason, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndSession(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cancels a copy; its memory becomes the part's spare, or is given back where there is one.
  void EndAttempt(PartFetch& part, size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<AttemptRef> FindByCall(CallId call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<AttemptRef> FindByRequest(uint64_t request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const std::vector<Worker>& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Duration Jittered(absl::Duration duration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ConsumerOptions options_;
  const uint64_t end_step_;
  const Pinned pinned_;
  const Uses uses_;

  mutable Mutex mutex_;
  CondVar delivered_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t head_ ABSL_GUARDED_BY(mutex_);
  absl::Time wait_deadline_ ABSL_GUARDED_BY(mutex_) =
      absl::InfiniteFuture();  // of the head; set by the first wait
  absl::Time wait_began_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // while one goes on
  double told_wait_seconds_ ABSL_GUARDED_BY(mutex_) = 0;                    // to all workers together
  std::map<uint64_t, StepFetch> steps_ ABSL_GUARDED_BY(mutex_);             // the window, in order
  WorkerTable workers_ ABSL_GUARDED_BY(mutex_);
  absl::Status endpoints_error_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_request_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_attempts_ ABSL_GUARDED_BY(mutex_) = 0;
  ConsumerStats stats_ ABSL_GUARDED_BY(mutex_);
  std::minstd_rand random_ ABSL_GUARDED_BY(mutex_);  // jitter only
};

}  // namespace evenkeel
