// One RequestPart call, from its session to its last event. Internal to the worker's control plane.
//
//   plan -> part -> pool: Accepted or Refused -> Progress... -> sending -> Sent | Failed | Refused (dropped)
//
// Thread safety: its callbacks come from gRPC, the planner, the pool and the transport, in any order;
// `mutex_` guards the queue of events and is never held during a call into any of them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/annotated_mutex.h"
#include "proto/service.pb.h"
#include "server/worker_service.h"

namespace evenkeel::server {

class PartCall;

// The same code, message and kind of failure for the control plane.
grpc::Status ToGrpc(const absl::Status& status);

// The open RequestPart calls, including those whose part is being sent.
class CallRegister {
 public:
  void Add(std::shared_ptr<PartCall> call);
  void Remove(PartCall* call);
  std::vector<std::shared_ptr<PartCall>> All() const;
  size_t size() const;
  bool WaitUntilEmpty(absl::Duration timeout);

 private:
  mutable Mutex mutex_;
  CondVar removed_;
  std::map<PartCall*, std::shared_ptr<PartCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

class PartCall : public grpc::ServerWriteReactor<pb::PartEvent>,
                 public PartListener,
                 public std::enable_shared_from_this<PartCall> {
 public:
  // The register keeps the call alive until gRPC no longer uses it.
  static PartCall* Start(const WorkerService::Uses& uses, CallRegister& calls, bool draining,
                         grpc::CallbackServerContext& context, const pb::RequestPartRequest& request);

  PartCall(const WorkerService::Uses& uses, CallRegister& calls, absl::Time deadline,
           const pb::RequestPartRequest& request);

  // gRPC's side.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // The pool's side.
  void OnProgress(std::string_view stage, uint64_t done, uint64_t total) override;
  void OnReady(std::shared_ptr<const ReadyPart> part) override;
  void OnDropped(absl::Duration retry_after, const std::string& why) override;
  void OnFailed(const absl::Status& status) override;

  void Tick();

 private:
  // How a call ends: for the metrics, and for gRPC.
  struct End {
    telemetry::Outcome outcome = telemetry::Outcome::kFailed;
    grpc::Status status;
  };

  void Begin(bool draining);
  absl::Status Enter();  // checks the session and the part's name
  void TakePlan(absl::StatusOr<std::shared_ptr<const stream::StepPlan>> plan);
  // Cuts out what the role receives, then sends.
  void Send(std::shared_ptr<const ReadyPart> part);
  void TakeSent(const ReadyPart& part, absl::Time begin, const absl::Status& status);

  void Answer(pb::PartEvent event);  // queues the first event
  void Post(pb::PartEvent event);    // queues progress; it replaces progress that is not written yet
  // Queues the last event and the end. `is_answer`: the pool was not asked, so no other first event will
  // come. Without it the last event waits for the first one.
  void Finally(std::optional<pb::PartEvent> event, End end, bool is_answer = false);
  void Fail(const absl::Status& status, bool is_answer = false);
  void Refuse(absl::Duration retry_after, const std::string& why, telemetry::Outcome outcome,
              bool is_answer = false);
  // Starts the next write, or finishes the call, unless a write is in progress.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);

  const WorkerService::Uses& uses_;
  CallRegister& calls_;
  const absl::Time deadline_;
  const pb::RequestPartRequest request_;
  PartName name_;
  std::optional<OpenRequest> open_;
  std::string transport_;
  PartRole role_ = PartRole::kWhole;
  uint64_t role_bytes_ = 0;  // of what the role receives; 0: the whole part

  Mutex mutex_;
  std::deque<pb::PartEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::optional<End> end_ ABSL_GUARDED_BY(mutex_);  // set once; takes effect after the queued events
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;   // the first event was queued
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t send_ticks_ ABSL_GUARDED_BY(mutex_) = 0;
  PartPool::Ticket ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  pb::PartEvent written_;  // must not change while gRPC writes it
};

}  // namespace evenkeel::server
