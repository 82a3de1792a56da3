// What the fetch loop decides: describes the next steps, takes receive memory in step order, asks workers for
// parts, and replaces workers that refuse, fail, disconnect or stop making progress.
//
// Events go in (Take), calls of the control plane and the transport come out, by the clock that the caller
// passes in. A step and a part keep their own books (StepFetch, PartFetch), as a worker does (Worker); pauses
// and budgets are retry_policy.h's. Clocks and random jitter decide whom to ask and when, never what a step
// contains: parts are in the description's order, whatever the order of their arrival.
//
// Thread safety: none; the fetch loop owns it under its mutex.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/consumer.h"
#include "client/control_plane.h"
#include "client/inbox.h"
#include "client/part_fetch.h"
#include "client/receive_memory.h"
#include "client/retry_policy.h"
#include "client/step_fetch.h"
#include "client/trainer_wait.h"
#include "client/worker_table.h"
#include "transport/transport.h"

namespace evenkeel::client {

// What all workers of a run must agree on.
struct Pinned {
  uint32_t stream_version = 0;
  std::string stream_digest;
  std::string layout_digest;
};

// Why a worker may not serve this run, or OK. FailedPrecondition names both values.
absl::Status CheckPinned(const WorkerDescription& worker, const Pinned& pinned);

class Fetcher {
 public:
  // What it uses; all outlive it.
  struct Uses {
    Inbox* inbox = nullptr;
    ControlPlane* control = nullptr;
    transport::Sink* sink = nullptr;
    std::shared_ptr<ReceiveMemory> memory;
    std::function<void()> look_for_workers;  // asks for a new list of endpoints, soon
    std::function<void(const std::string&)> log;
    std::function<absl::Status(const std::string&)> may_dial;  // an endpoint, before it is connected
  };
  Fetcher(const ConsumerOptions& options, Pinned pinned, Uses uses);

  // An event of the inbox (fetch_events.cc).
  void Take(Event event, absl::Time now);
  // What to do next. Called at least every 50 ms, and after events.
  void Tick(absl::Time now);
  // Drops all steps and continues from this one.
  void Seek(uint64_t step);
  // Ends every request and closes every session.
  void Close();

  uint64_t head() const { return head_; }
  // The head step is complete, has failed for good, or is past the last one.
  bool HeadIsDecided() const;
  // Hands the head step over. OutOfRange past the last one; the error of a step that failed for good;
  // DeadlineExceeded, naming what is awaited, if it is not decided.
  absl::StatusOr<std::shared_ptr<const StepData>> TakeHead(absl::Time now);

  TrainerWait& wait() { return wait_; }
  ConsumerStats stats(absl::Time now) const;

 private:
  using Work = WorkerStanding::Work;
  static constexpr Work kDescriptions = WorkerStanding::kDescriptions;

  // fetcher.cc: what to do next.
  void ExtendWindow();
  void AskForDescription(StepFetch& step, absl::Time now);
  void AskForParts(StepFetch& step, absl::Time now);
  // Asks the next worker for the part, into its spare memory. False if none takes it now.
  bool AskForCopy(StepFetch& step, PartFetch& part, absl::Time now);
  void SendRequest(PartFetch& part, Worker& worker, absl::Time now);
  // `carefully`: workers that may not get on with it are asked last, too.
  Choice ChooseFor(const StepFetch& step, const PartFetch& part, bool carefully, absl::Time now);
  // Reports the wait with a call of its own, if requests do not carry it because there is nothing to ask for.
  void ReportWait(absl::Time now);
  // The wait that was reported to this worker's session, with what was reported to nobody yet.
  double WaitFor(Worker& worker, absl::Time now);
  std::string WhatIsAwaited(absl::Time now) const;
  std::shared_ptr<const StepData> Deliver(StepFetch& step);
  void DropSteps();

  // fetch_stalls.cc: requests and workers that stand still.
  void LookForBytes(absl::Time now);
  std::set<std::string> DoubtfulWorkers(Work work, absl::Time now);
  void ReplaceStale(absl::Time now);
  bool ReplaceStaleAttempt(StepFetch& step, PartFetch& part, size_t index, absl::Time now);
  bool WaitsForTrial(const PartFetch& part, absl::Time now);
  void PassOverTrials(absl::Time now);
  void AskElsewhere(StepFetch& step, PartFetch& part, absl::Time now);
  void MarkStall(Worker& worker, Work work, absl::Time asked, absl::Time still_since, absl::Time now);

  // fetch_events.cc: what happened.
  void TakeOpened(CallId call, const OpenedSession& opened, absl::Time now);
  void TakeDescription(CallId call, StepDescription description, absl::Time now);
  void TakePartEvent(AttemptRef ref, const PartEvent& event, absl::Time now);
  void TakeRefusal(AttemptRef ref, double retry_after_seconds, const std::string& reason, absl::Time now);
  void TakeFailure(AttemptRef ref, const std::string& message, const std::string& exclude, absl::Time now);
  // The worker's machine failed, not the data: the part is asked of others, and of this one after a pause.
  void TakeTrouble(AttemptRef ref, const std::string& message, absl::Time now);
  void TakeCallEnded(CallId call, const absl::Status& status, absl::Time now);
  void TakeStreamEnded(AttemptRef ref, const absl::Status& status, absl::Time now);
  void TakeDescribeFailed(StepFetch& step, const absl::Status& status, absl::Time now);
  void TakeReceived(const Received& received, absl::Time now);
  void TakeDamage(AttemptRef ref, const absl::Status& status, absl::Time now);
  void TakeBytes(AttemptRef ref, absl::Time now);
  void TakeEndpoints(const EndpointsChanged& changed);

  // fetch_sessions.cc: sessions and attempts begin and end.
  void OpenSession(Worker& worker, absl::Time now);
  // Ends the worker's session and all its attempts. A lost worker is counted and left alone for a while.
  void LoseWorker(Worker& worker, const std::string& reason, absl::Time now);
  void RejectWorker(Worker& worker, const std::string& reason, absl::Time now);
  // Without blame: the worker was restarted, or the session was idle for too long.
  void ReopenSession(Worker& worker, const std::string& reason, absl::Time now);
  void SendAway(Worker& worker, Backoff backoff, const std::string& reason, absl::Time now);
  void EndSession(Worker& worker);
  void CloseIdleSessions(absl::Time now);
  // Cancels a copy; its memory becomes the part's spare, or is given back if it has one.
  void EndAttempt(PartFetch& part, size_t index);
  void Release(const std::vector<Worker>& finished);

  const ConsumerOptions options_;
  const uint64_t end_step_;
  const Pinned pinned_;
  const Uses uses_;

  uint64_t head_;
  StepWindow steps_;
  WorkerTable workers_;
  absl::Status endpoints_error_;
  uint64_t last_request_ = 0;
  size_t num_attempts_ = 0;
  // From the request to the last byte, per phase: a moving mean.
  std::array<absl::Duration, kMaxPhases> part_time_ = {};
  TrainerWait wait_;
  ConsumerStats stats_;
  Jitter jitter_;
};

}  // namespace evenkeel::client
