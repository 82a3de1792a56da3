// Decides what the consumer does next: asks for descriptions of the coming steps, takes receive memory in
// step order, requests parts from workers, and replaces workers that refuse, fail, disconnect or stop making
// progress.
//
// Events go in (Take) and calls to the control plane and the transport come out; time is an argument. Steps,
// parts and workers keep their own state (StepFetch, PartFetch, Worker); retry_policy.h has all pauses and
// budgets. Clocks and random jitter influence which worker is asked and when, never what a step contains:
// parts keep the description's order, whatever their order of arrival.
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

// OK, or FailedPrecondition with both values if the worker may not serve this run.
absl::Status CheckPinned(const WorkerDescription& worker, const Pinned& pinned);

class Fetcher {
 public:
  // The fetcher's collaborators; all outlive it.
  struct Uses {
    Inbox* inbox = nullptr;
    ControlPlane* control = nullptr;
    transport::Sink* sink = nullptr;
    std::shared_ptr<ReceiveMemory> memory;
    std::function<void()> look_for_workers;  // asks for a new list of endpoints, soon
    std::function<void(const std::string&)> log;
    std::function<absl::Status(const std::string&)> may_dial;  // checks an endpoint before it is dialled
    // By which workers are chosen: the same for all members of a replica, so that one worker makes what they share.
    uint32_t asks_as = 0;
    // With dynamic groups, whose members share the parts of their first rank: the global ranks of the llm; else empty.
    std::vector<uint32_t> llm_ranks = {};
  };
  Fetcher(const ConsumerOptions& options, Pinned pinned, Uses uses);

  // Handles an event of the inbox (fetch_events.cc).
  void Take(Event event, absl::Time now);
  // Acts on the current state. Called at least every 50 ms, and after events.
  void Tick(absl::Time now);
  // Drops all steps and continues from this one.
  void Seek(uint64_t step);
  // Ends every request and closes every session.
  void Close();

  uint64_t head() const { return head_; }
  // True if the head step is complete, has failed for good, or is past the last one.
  bool HeadIsDecided() const;
  // Hands the head step over and advances. OutOfRange: past the last step. DeadlineExceeded: not decided yet
  // (names what is missing). Else the error of a step that failed for good.
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
  // Sends a request for the part to the best worker, into its spare memory. Returns false if no worker can
  // take it now.
  bool AskForCopy(StepFetch& step, PartFetch& part, absl::Time now);
  void SendRequest(PartFetch& part, Worker& worker, absl::Time now);
  // `carefully`: workers that may be stuck are asked last, too.
  Choice ChooseFor(const StepFetch& step, const PartFetch& part, bool carefully, absl::Time now);
  // Reports the trainer's wait in a call of its own if no request carries it.
  void ReportWait(absl::Time now);
  // The wait reported to this worker's session so far, plus what no worker has been sent yet.
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
  // The worker's machine failed, not the data: others get the request, and this worker again after a pause.
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
  // Ends the worker's session and all its attempts, counts the loss, and leaves the worker alone for a while.
  void LoseWorker(Worker& worker, const std::string& reason, absl::Time now);
  void RejectWorker(Worker& worker, const std::string& reason, absl::Time now);
  // For a restarted worker or an idle session: no failure is counted.
  void ReopenSession(Worker& worker, const std::string& reason, absl::Time now);
  void SendAway(Worker& worker, Backoff backoff, const std::string& reason, absl::Time now);
  void EndSession(Worker& worker);
  void CloseIdleSessions(absl::Time now);
  // Cancels a copy. Its memory becomes the part's spare, or is released if the part has one.
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
  // Moving mean per phase of the time from request to last byte.
  std::array<absl::Duration, kMaxPhases> part_time_ = {};
  TrainerWait wait_;
  ConsumerStats stats_;
  Jitter jitter_;
};

}  // namespace evenkeel::client
