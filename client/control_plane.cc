// Asynchronous gRPC calls over one completion queue: one thread takes completed operations and turns them
// into events of the inbox.
#include "client/control_plane.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "core/failure.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "proto/service.grpc.pb.h"

namespace evenkeel::client {
namespace {

// Keeps the FailureKind that the worker attaches to its status, if there is one.
absl::Status ToAbsl(const grpc::Status& status) {
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  pb::FailureDetail detail;
  if (status.error_details().empty() || !detail.ParseFromString(status.error_details())) return out;
  return WithKind(std::move(out), FailureKindFrom(detail.kind()));
}

// A mesh that a worker cannot have is left out: then its members are not in the job, which is an error with their rank.
Mesh MeshFrom(const pb::PhaseRanks& ranks) {
  Mesh mesh{
      .sizes = {ranks.mesh().tensor(), ranks.mesh().context(), ranks.mesh().data(), ranks.mesh().pipeline()},
      .ranks = {ranks.members().begin(), ranks.members().end()}};
  const absl::StatusOr<Mesh::Order> order = ParseMeshOrder(ranks.mesh().order());
  const bool bounded = std::all_of(mesh.sizes.begin(), mesh.sizes.end(),
                                   [](uint32_t size) { return size >= 1 && size <= kMaxRank; });
  const bool fits = bounded && order.ok() && mesh.num_members() == mesh.ranks.size() &&
                    mesh.size(MeshAxis::kData) == static_cast<uint32_t>(ranks.ranks_size());
  if (!fits) return Mesh();
  mesh.order = *order;
  return mesh;
}

WorkerDescription FromMessage(const pb::DescribeReply& reply) {
  WorkerDescription out;
  out.job_name = reply.job_name();
  out.release = reply.release();
  out.stream_version = reply.stream_version();
  out.part_format = reply.part_format();
  out.stream_digest = reply.stream_digest();
  out.layout_digest = reply.layout_digest();
  out.transports.assign(reply.transports().begin(), reply.transports().end());
  out.draining = reply.draining();
  out.sequences = reply.sequences();
  out.group_sizes.assign(reply.group_sizes().begin(), reply.group_sizes().end());
  if (reply.has_num_steps()) out.num_steps = reply.num_steps();
  for (const pb::PhaseRanks& ranks : reply.phases()) {
    const size_t number = out.phases.size();
    // Skip what a later release may send: its parts are refused by name.
    if (!IsPhaseName(ranks.phase()) || number >= kMaxPhases) continue;
    Phase phase(ranks.phase(), static_cast<uint8_t>(number));
    for (Medium medium : kItemMedia) {
      const auto& media = ranks.media();
      if (std::find(media.begin(), media.end(), static_cast<uint32_t>(medium)) != media.end())
        phase.Add(medium);
    }
    if (ranks.is_generator()) phase.BecomeGenerator();
    out.phases.push_back(
        {phase, {ranks.ranks().begin(), ranks.ranks().end()}, ranks.once_per_microbatch(), MeshFrom(ranks)});
  }
  return out;
}

OpenedSession FromMessage(const pb::OpenSessionReply& reply) {
  return {reply.session_id(), reply.address(), reply.transport_detail(), FromMessage(reply.worker())};
}

// Translates the answer to a fire-and-forget call.
constexpr auto kAcknowledged = [](const auto&) -> absl::StatusOr<Woken> { return Woken(); };

// Returns nullopt for an event kind of a later release.
std::optional<PartEvent> FromMessage(const pb::PartEvent& message) {
  PartEvent out;
  switch (message.event_case()) {
    case pb::PartEvent::kAccepted:
      out.kind = PartEvent::Kind::kAccepted;
      out.queue = message.accepted().queue();
      return out;
    case pb::PartEvent::kRefused:
      out.kind = PartEvent::Kind::kRefused;
      out.retry_after_seconds = message.refused().retry_after_seconds();
      out.text = message.refused().reason();
      return out;
    case pb::PartEvent::kProgress:
      out.kind = PartEvent::Kind::kProgress;
      out.text = message.progress().stage();
      out.done = message.progress().done();
      out.total = message.progress().total();
      return out;
    case pb::PartEvent::kSent:
      out.kind = PartEvent::Kind::kSent;
      out.length = message.sent().length();
      return out;
    case pb::PartEvent::kFailed:
      out.kind = PartEvent::Kind::kFailed;
      out.code = message.failed().code();
      out.text = message.failed().message();
      out.exclude = message.failed().exclude();
      out.failure = FailureKindFrom(message.failed().kind());
      return out;
    case pb::PartEvent::EVENT_NOT_SET:
      break;
  }
  return std::nullopt;
}

using Stub = pb::Worker::Stub;

// The type of the stub's members that prepare a unary call.
template <typename Request, typename Reply>
// The type of the stub's members that prepare a unary call.
using Prepare = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (Stub::*)(grpc::ClientContext*,
                                                                                  const Request&,
                                                                                  grpc::CompletionQueue*);

// One call in flight. It has at most one operation in the completion queue at a time, so that its address
// serves as the tag.
class Call {
 public:
  Call(CallId id, Inbox* inbox, absl::Duration timeout) : id_(id), inbox_(inbox) {
    context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
  }
  virtual ~Call() = default;

  // Handles a completed operation. Returns false if the call has ended and can be destroyed.
  virtual bool Proceed(bool ok) = 0;
  void Cancel() { context_.TryCancel(); }
  CallId id() const { return id_; }

 protected:
  template <typename What>
  void Post(What what) {
    inbox_->Post({id_, std::move(what)});
  }

  const CallId id_;
  Inbox* const inbox_;
  grpc::ClientContext context_;
  grpc::Status status_;
};

// `Translate` converts the reply into the event's content, or into a status if the reply is invalid.
template <typename Reply, typename Translate>
class UnaryCall : public Call {
 public:
  UnaryCall(CallId id, Inbox* inbox, absl::Duration timeout, Translate translate)
      : Call(id, inbox, timeout), translate_(std::move(translate)) {}

  template <typename Request>
  void Start(Stub& stub, Prepare<Request, Reply> prepare, const Request& request,
             grpc::CompletionQueue* queue) {
    reader_ = (stub.*prepare)(&context_, request, queue);
    reader_->StartCall();
    reader_->Finish(&reply_, &status_, this);
  }
  bool Proceed(bool) override {
    if (!status_.ok()) {
      Post(CallEnded{ToAbsl(status_)});
      return false;
    }
    auto what = translate_(reply_);
    if (what.ok()) {
      Post(*std::move(what));
    } else {
      Post(CallEnded{what.status()});
    }
    return false;
  }

 private:
  const Translate translate_;
  Reply reply_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader_;
};

// A stream of events for one part. After each message it starts the next read; when reads end, Finish gives
// the final status.
class PartCall : public Call {
 public:
  using Call::Call;

  void Start(Stub& stub, const pb::RequestPartRequest& request, grpc::CompletionQueue* queue) {
    reader_ = stub.PrepareAsyncRequestPart(&context_, request, queue);
    reader_->StartCall(this);
  }
  bool Proceed(bool ok) override {
    if (state_ == State::kFinishing) {
      Post(CallEnded{ToAbsl(status_)});
      return false;
    }
    if (state_ == State::kReading && ok) {
      if (std::optional<PartEvent> event = FromMessage(event_); event.has_value()) Post(*std::move(event));
    }
    if (ok) {
      state_ = State::kReading;
      reader_->Read(&event_, this);
    } else {
      state_ = State::kFinishing;
      reader_->Finish(&status_, this);
    }
    return true;
  }

 private:
  enum class State { kStarting, kReading, kFinishing };
  State state_ = State::kStarting;
  pb::PartEvent event_;
  std::unique_ptr<grpc::ClientAsyncReader<pb::PartEvent>> reader_;
};

class GrpcControlPlane : public ControlPlane {
 public:
  GrpcControlPlane(std::shared_ptr<grpc::ChannelCredentials> credentials, std::string certified_name,
                   Inbox* inbox)
      : credentials_(std::move(credentials)), certified_name_(std::move(certified_name)), inbox_(inbox) {
    thread_ = std::thread([this] { Complete(); });
  }
  ~GrpcControlPlane() override {
    {
      MutexLock lock(mutex_);
      for (auto& [id, call] : calls_) call->Cancel();
      // Tags are pointers to calls, so the queue must be empty before they are destroyed.
      while (!calls_.empty()) ended_.Wait(mutex_);  // a cancelled call ends at once, also if its peer hangs
    }
    queue_.Shutdown();
    thread_.join();
  }

  CallId Describe(const std::string& endpoint, absl::Duration timeout) override {
    auto translate = [](const pb::DescribeReply& reply) -> absl::StatusOr<WorkerDescription> {
      return FromMessage(reply);
    };
    return StartUnary(endpoint, &Stub::PrepareAsyncDescribe, pb::DescribeRequest(), timeout, translate);
  }

  CallId OpenSession(const std::string& endpoint, const SessionRequest& session,
                     absl::Duration timeout) override {
    pb::OpenSessionRequest request;
    request.set_stream_digest(session.stream_digest);
    request.set_layout_digest(session.layout_digest);
    request.set_stream_version(session.stream_version);
    request.set_part_format(kPartFormatVersion);
    request.set_rank(session.rank);
    request.set_transport(session.transport);
    request.set_address(session.address);
    request.set_memory_address(session.memory_address);
    request.set_secret(session.secret.data(), session.secret.size());
    auto translate = [](const pb::OpenSessionReply& reply) -> absl::StatusOr<OpenedSession> {
      return FromMessage(reply);
    };
    return StartUnary(endpoint, &Stub::PrepareAsyncOpenSession, request, timeout, translate);
  }

  CallId CloseSession(const std::string& endpoint, uint64_t session, absl::Duration timeout) override {
    pb::CloseSessionRequest request;
    request.set_session_id(session);
    return StartUnary(endpoint, &Stub::PrepareAsyncCloseSession, request, timeout, kAcknowledged);
  }

  CallId DescribeStep(const std::string& endpoint, uint64_t session, uint64_t step, uint32_t rank,
                      StepQuestion question, absl::Duration timeout) override {
    pb::DescribeStepRequest request;
    request.set_session_id(session);
    request.set_step(step);
    request.set_rank(rank);
    request.set_all_loads(question.all_loads);
    request.set_whole(question.whole);
    auto translate = [step](const pb::DescribeStepReply& reply) { return CheckDescription(reply, step); };
    return StartUnary(endpoint, &Stub::PrepareAsyncDescribeStep, request, timeout, translate);
  }

  CallId RequestPart(const std::string& endpoint, const PartRequest& part, absl::Duration timeout) override {
    pb::RequestPartRequest request;
    request.set_session_id(part.session);
    request.set_request_id(part.request);
    request.set_step(part.name.step);
    request.set_phase(std::string(PhaseName(part.name.phase)));
    request.set_phase_rank(part.name.rank);
    request.set_microbatch(part.name.microbatch);
    request.set_piece(part.name.piece);
    request.set_attempt(part.attempt);
    request.set_consumer_wait_seconds(part.wait_seconds);
    request.set_role(static_cast<uint32_t>(part.role));
    MutexLock lock(mutex_);
    auto call = std::make_unique<PartCall>(++last_id_, inbox_, timeout);
    call->Start(StubFor(endpoint), request, &queue_);
    return Keep(std::move(call));
  }

  CallId ReportWait(const std::string& endpoint, uint64_t session, double wait_seconds,
                    absl::Duration timeout) override {
    pb::ReportWaitRequest request;
    request.set_session_id(session);
    request.set_consumer_wait_seconds(wait_seconds);
    return StartUnary(endpoint, &Stub::PrepareAsyncReportWait, request, timeout, kAcknowledged);
  }

  void Cancel(CallId call) override {
    MutexLock lock(mutex_);
    auto found = calls_.find(call);
    if (found != calls_.end()) found->second->Cancel();
  }

  void Forget(const std::string& endpoint) override {
    MutexLock lock(mutex_);
    stubs_.erase(endpoint);
  }

  void Settle(absl::Duration timeout) override {
    absl::Time deadline = SteadyNow() + timeout;
    MutexLock lock(mutex_);
    while (!calls_.empty() && ended_.WaitUntil(mutex_, deadline)) continue;
  }

 private:
  // One channel per endpoint, created on first use and shared by all its calls until Forget.
  Stub& StubFor(const std::string& endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::unique_ptr<Stub>& stub = stubs_[endpoint];
    if (stub == nullptr) {
      grpc::ChannelArguments arguments = transport::ClientArguments();
      if (!certified_name_.empty()) arguments.SetSslTargetNameOverride(certified_name_);
      stub = pb::Worker::NewStub(grpc::CreateCustomChannel(endpoint, credentials_, arguments));
    }
    return *stub;
  }

  template <typename Request, typename Reply, typename Translate>
  CallId StartUnary(const std::string& endpoint, Prepare<Request, Reply> prepare, const Request& request,
                    absl::Duration timeout, Translate translate) {
    MutexLock lock(mutex_);
    auto call = std::make_unique<UnaryCall<Reply, Translate>>(++last_id_, inbox_, timeout, translate);
    call->Start(StubFor(endpoint), prepare, request, &queue_);
    return Keep(std::move(call));
  }

  CallId Keep(std::unique_ptr<Call> call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CallId id = call->id();
    calls_[id] = std::move(call);
    return id;
  }

  // The completion thread. It holds the mutex while a call proceeds, so that Cancel never meets a destroyed
  // call.
  void Complete() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      MutexLock lock(mutex_);
      Call* call = static_cast<Call*>(tag);
      if (call->Proceed(ok)) continue;
      calls_.erase(call->id());
      ended_.NotifyAll();
    }
  }

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const std::string certified_name_;
  Inbox* const inbox_;
  grpc::CompletionQueue queue_;

  Mutex mutex_;  // lock order: before the inbox's
  CondVar ended_;
  CallId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::unique_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  std::map<CallId, std::unique_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ControlPlane> ControlPlane::Make(const std::shared_ptr<transport::Certificates>& certificates,
                                                 const std::string& certified_name, Inbox* inbox) {
  return std::make_unique<GrpcControlPlane>(transport::MakeChannelCredentials(certificates), certified_name,
                                            inbox);
}

}  // namespace evenkeel::client
