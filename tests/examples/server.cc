// The examples of server/.
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <cstddef>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/file_limit.h"
#include "core/status.h"
#include "server/acceptor.h"
#include "server/handle_plan.h"
#include "server/http_responder.h"
#include "server/listener.h"
#include "server/memory_account.h"
#include "server/part_pool.h"
#include "server/poll_thread.h"
#include "server/self_test.h"
#include "server/session_table.h"
#include "server/step_compiler.h"
#include "server/step_planner.h"
#include "server/worker.h"
#include "server/worker_service.h"
#include "stream/part_builder.h"
#include "stream/part_task.h"
#include "stream/stream.h"
#include "telemetry/event_log.h"

namespace evenkeel::server {

struct Taker {
  void TakeOver(Handle connection);
};
void Accept(Listener listener, Taker& server){
#include "examples/server/acceptor.h.inc"
}

absl::Status Divide(const WorkerOptions& options) {
#include "examples/server/handle_plan.h.inc"
  return absl::OkStatus();
}

absl::Status Respond() {
#include "examples/server/http_responder.h.inc"
  return absl::OkStatus();
}

absl::Status ListenHere() {
#include "examples/server/listener.h.inc"
  return absl::OkStatus();
}

void Reserve(const std::shared_ptr<MemoryAccount>& account) {
#include "examples/server/memory_account.h.inc"
}

void MakeParts(telemetry::Metrics& metrics, std::unique_ptr<stream::PartTask> task,
               std::shared_ptr<PartListener> listener) {
#include "examples/server/part_pool.h.inc"
}

struct Loop {
  explicit Loop(PollThread& thread);
  void Run();
};
void Poll() {
#include "examples/server/poll_thread.h.inc"
}

void TestItself(const std::shared_ptr<grpc::ChannelCredentials>& credentials){
#include "examples/server/self_test.h.inc"
}

absl::Status KeepSessions(SessionTable& table, uint32_t rank, transport::Source& source,
                          const std::string& address, const transport::Secret& secret, uint64_t id) {
#include "examples/server/session_table.h.inc"
  return absl::OkStatus();
}

struct FarSampler {
  absl::StatusOr<bool> Extend(uint64_t step);
};
void Compile(FarSampler& sampler) {
#include "examples/server/step_compiler.h.inc"
}

void PlanSteps(const StepPlanner::Source& source){
#include "examples/server/step_planner.h.inc"
}

absl::Status Serve(const WorkerOptions& options, Job job) {
#include "examples/server/worker.h.inc"
  return absl::OkStatus();
}

void ServeCalls(const stream::Stream& stream, StepPlanner& planner, const stream::PartBuilder& parts,
                PartPool& pool, SessionTable& sessions, telemetry::Metrics& metrics,
                const std::vector<transport::Source*>& sources, grpc::ServerBuilder& builder,
                absl::Duration timeout) {
#include "examples/server/worker_service.h.inc"
}

}  // namespace evenkeel::server
