// Translates calls of the control plane between protobuf and plain structs.
#include "server/worker_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "proto/service.grpc.pb.h"
#include "server/part_call.h"
#include "server/step_reply.h"
#include "telemetry/event_log.h"
#include "transport/address.h"

namespace evenkeel::server {
namespace {

bool HasDeadline(const grpc::CallbackServerContext& context) {
  return context.deadline() != std::chrono::system_clock::time_point::max();
}

absl::Status NoDeadline() { return absl::InvalidArgumentError("every call must have a deadline"); }

// FailedPrecondition with both values if they differ.
absl::Status CheckSame(std::string_view what, std::string_view theirs, std::string_view ours,
                       std::string_view hint) {
  if (theirs == ours) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      absl::string_view(what.data(), what.size()), ": the consumer has ",
      absl::string_view(theirs.data(), theirs.size()), ", this worker ",
      absl::string_view(ours.data(), ours.size()), "; ", absl::string_view(hint.data(), hint.size())));
}

absl::Status CheckStream(const stream::Stream& stream, const pb::OpenSessionRequest& request) {
  EVENKEEL_RETURN_IF_ERROR(CheckSame("stream version", absl::StrCat(request.stream_version()),
                                     absl::StrCat(kStreamVersion),
                                     "run workers and consumers of one release"));
  EVENKEEL_RETURN_IF_ERROR(CheckSame("part format", absl::StrCat(request.part_format()),
                                     absl::StrCat(kPartFormatVersion),
                                     "run workers and consumers of one release"));
  if (!request.stream_digest().empty()) {
    EVENKEEL_RETURN_IF_ERROR(CheckSame("stream digest", request.stream_digest(), stream.stream_digest.Hex(),
                                       "their index, seed, batch size or processor differs"));
  }
  if (!request.layout_digest().empty()) {
    EVENKEEL_RETURN_IF_ERROR(CheckSame("layout digest", request.layout_digest(), stream.layout_digest.Hex(),
                                       "their topology, costs, algorithms or wire form differ"));
  }
  return absl::OkStatus();
}

// A call that is rejected before it begins.
class Rejection : public grpc::ServerWriteReactor<pb::PartEvent> {
 public:
  explicit Rejection(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

class WorkerService::Rpcs : public pb::Worker::CallbackService {
 public:
  explicit Rpcs(Uses uses) : uses_(std::move(uses)) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const pb::DescribeRequest*,
                                     pb::DescribeReply* reply) override {
    if (HasDeadline(*context)) Fill(*reply);
    return End(context, HasDeadline(*context) ? absl::OkStatus() : NoDeadline());
  }

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const pb::OpenSessionRequest* request,
                                        pb::OpenSessionReply* reply) override {
    return End(context, HasDeadline(*context) ? Open(*request, *reply) : NoDeadline());
  }

  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const pb::CloseSessionRequest* request,
                                         pb::CloseSessionReply*) override {
    uses_.sessions.Close(request->session_id());
    return End(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* DescribeStep(grpc::CallbackServerContext* context,
                                         const pb::DescribeStepRequest* request,
                                         pb::DescribeStepReply* reply) override {
    if (!HasDeadline(*context)) return End(context, NoDeadline());
    if (auto session = uses_.sessions.Find(request->session_id()); !session.ok()) {
      return End(context, session.status());
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    GetPlans(request->step(), {}, [this, request, reply, reactor](auto plans) {
      absl::Status status = plans.status();
      if (plans.ok()) {
        status = evenkeel::server::DescribeStep(uses_.stream, uses_.builder, uses_.pool, uses_.max_part_bytes,
                                                *plans, *request, *reply);
      }
      // For this call NOT_FOUND means an unknown session, so other causes get another code.
      if (absl::IsNotFound(status)) {
        status = WithKind(absl::InternalError(status.message()), KindOf(status));
      }
      reactor->Finish(ToGrpc(AddContext(status, absl::StrCat("step ", request->step()))));
    });
    return reactor;
  }

  grpc::ServerWriteReactor<pb::PartEvent>* RequestPart(grpc::CallbackServerContext* context,
                                                       const pb::RequestPartRequest* request) override {
    if (!HasDeadline(*context)) return std::make_unique<Rejection>(NoDeadline()).release();
    return PartCall::Start(uses_, calls_, draining_, *context, *request);
  }

  grpc::ServerUnaryReactor* ReportWait(grpc::CallbackServerContext* context,
                                       const pb::ReportWaitRequest* request, pb::ReportWaitReply*) override {
    if (!HasDeadline(*context)) return End(context, NoDeadline());
    absl::StatusOr<std::shared_ptr<Session>> session = uses_.sessions.Find(request->session_id());
    if (session.ok()) uses_.metrics.AddConsumerWait((*session)->TakeWait(request->consumer_wait_seconds()));
    return End(context, session.status());
  }

  void SetDraining() { draining_ = true; }
  CallRegister& calls() { return calls_; }

 private:
  static grpc::ServerUnaryReactor* End(grpc::CallbackServerContext* context, const absl::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  void Fill(pb::DescribeReply& reply) const {
    DescribeStream(uses_.stream, reply);
    for (const transport::Source* source : uses_.sources) reply.add_transports(source->info().name);
    reply.set_draining(draining_);
    reply.set_release(EVENKEEL_VERSION);
  }

  // Null: not offered.
  transport::Source* Find(std::string_view name) const {
    const auto found = std::find_if(uses_.sources.begin(), uses_.sources.end(),
                                    [&](const auto* one) { return one->info().name == name; });
    return found == uses_.sources.end() ? nullptr : *found;
  }

  absl::Status Open(const pb::OpenSessionRequest& request, pb::OpenSessionReply& reply) {
    if (draining_) return absl::UnavailableError("the worker is draining; ask another");
    EVENKEEL_RETURN_IF_ERROR(CheckStream(uses_.stream, request));
    transport::Secret secret;
    if (request.secret().size() != secret.size()) {
      return absl::InvalidArgumentError(absl::StrCat("OpenSession: the secret has ", request.secret().size(),
                                                     " bytes, not ", secret.size()));
    }
    std::copy(request.secret().begin(), request.secret().end(), secret.begin());
    std::string address = request.memory_address();
    // A consumer of this machine that can take sealed memory gets that.
    transport::Source* source = transport::IsMemoryOfThisHost(address) ? Find("memory") : nullptr;
    if (source == nullptr) {
      address = request.address();
      source = Find(request.transport());
    }
    if (source == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("this worker does not offer the transport '",
                                                        request.transport(),
                                                        "'; see Describe and serve --transport"));
    }
    EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                              uses_.sessions.Open(request.rank(), *source, address, secret));
    const transport::Info info = source->info();
    reply.set_session_id(session->id);
    reply.set_address(source->address());
    reply.set_session_idle_seconds(static_cast<uint32_t>(absl::ToInt64Seconds(uses_.sessions.idle())));
    reply.set_transport_detail(info.detail);
    Fill(*reply.mutable_worker());
    telemetry::LogEvent(telemetry::LogLevel::kInfo, "session_opened",
                        {{"rank", request.rank()}, {"transport", info.name}, {"detail", info.detail}});
    return absl::OkStatus();
  }

  using Plans = std::vector<StepPlanner::PlanPtr>;

  // Calls `ready` once with the plan of a step and, with dynamic groups, those of the next steps, up to the end of the
  // stream; or with the first error. `plans`: those from `step` on that are there.
  void GetPlans(uint64_t step, Plans plans, std::function<void(absl::StatusOr<Plans>)> ready) {
    const uint64_t next = step + plans.size();
    uses_.planner.Get(next,
                      [this, step, plans = std::move(plans), ready = std::move(ready)](auto plan) mutable {
                        if (!plan.ok()) return ready(plan.status());
                        plans.push_back(*std::move(plan));
                        const uint64_t after = step + plans.size();
                        const std::optional<uint64_t>& end = uses_.stream.num_steps;
                        const bool has_more = uses_.stream.job.groups.given && plans.size() <= kGroupsAhead &&
                                              after > step && (!end.has_value() || after < *end);
                        if (!has_more) return ready(std::move(plans));
                        GetPlans(step, std::move(plans), std::move(ready));
                      });
  }

  const Uses uses_;
  CallRegister calls_;
  std::atomic<bool> draining_{false};
};

WorkerService::WorkerService(Uses uses) : rpcs_(std::make_unique<Rpcs>(std::move(uses))) {}
WorkerService::~WorkerService() = default;

grpc::Service* WorkerService::service() { return rpcs_.get(); }
void WorkerService::SetDraining() { rpcs_->SetDraining(); }
bool WorkerService::WaitForCalls(absl::Duration timeout) { return rpcs_->calls().WaitUntilEmpty(timeout); }
size_t WorkerService::open_calls() const { return rpcs_->calls().size(); }

void WorkerService::Tick() {
  for (const std::shared_ptr<PartCall>& call : rpcs_->calls().All()) call->Tick();
}

}  // namespace evenkeel::server
