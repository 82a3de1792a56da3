// The sending side over gRPC: one Deliver stream per session, opened by the consumer.
//
// gRPC sends the bytes from the caller's memory: a chunk is a slice that refers to them, and a loan
// (transport/loan.h) calls `done` when gRPC has released all slices of a send. A send that ends early waits
// for that, too. gRPC releases a cancelled stream's slices at once. If a consumer does not read, it releases
// them when the kernel closes the connection, within seconds (keepalive, TCP_USER_TIMEOUT).
//
// Locking: the source's mutex guards `sessions_`; a session's mutex guards its contents. Lock order: the
// source's before a session's. Callbacks run on the task thread, without locks.
#include <grpcpp/grpcpp.h>

#include <array>
#include <atomic>
#include <deque>
#include <unordered_map>

#include "core/status.h"
#include "proto/service.grpc.pb.h"
#include "transport/chunk.h"
#include "transport/credentials.h"
#include "transport/deadline.h"
#include "transport/factory.h"
#include "transport/loan.h"
#include "transport/secret.h"
#include "transport/task_thread.h"

namespace evenkeel::transport {
namespace {

// How often the handler of an idle stream checks that its consumer is connected.
constexpr absl::Duration kIdleCheck = absl::Milliseconds(200);

using Writer = grpc::ServerWriter<grpc::ByteBuffer>;

struct PendingSend {
  RequestId request = 0;
  std::span<const std::byte> bytes;
  Digest hash;
  Clock::time_point deadline;
  std::shared_ptr<Loan> loan;  // of `bytes`, with `done`
  size_t offset = 0;           // of the next chunk
  bool started = false;        // the first chunk was made, which may be empty
};

struct SourceSession {
  SessionId id = 0;
  Secret secret{};
  Clock::time_point deadline;  // for the consumer to open its stream
  std::shared_ptr<Lender> lender;

  Mutex mutex;
  CondVar changed;
  std::deque<PendingSend> queue ABSL_GUARDED_BY(mutex);  // the first is being sent
  grpc::ServerContext* stream ABSL_GUARDED_BY(mutex) = nullptr;
  bool opened ABSL_GUARDED_BY(mutex) = false;
  absl::Status failure ABSL_GUARDED_BY(mutex);          // not OK: dead
  Clock::time_point settled_by ABSL_GUARDED_BY(mutex);  // if dead: when outstanding loans are abandoned
};
using SessionPtr = std::shared_ptr<SourceSession>;

class StreamingSource final : public GrpcSource, private grpc::Service {
 public:
  explicit StreamingSource(const Options& options)
      : options_(options), tasks_("evenkeel-grpc", [this](Clock::time_point now) { return Tick(now); }) {
    using Handler =
        grpc::internal::ServerStreamingHandler<StreamingSource, pb::DeliverRequest, grpc::ByteBuffer>;
    // Registers the method as protoc's generated code does, but with bytes for a response: pb::Chunk would
    // copy the data.
    auto handler = std::make_unique<Handler>(
        [](StreamingSource* self, grpc::ServerContext* context, const pb::DeliverRequest* request,
           Writer* writer) { return self->Deliver(context, request, writer); },
        this);
    AddMethod(std::make_unique<grpc::internal::RpcServiceMethod>(
                  kDeliver, grpc::internal::RpcMethod::SERVER_STREAMING, handler.release())
                  .release());
  }
  ~StreamingSource() override { Stop(); }

  Info info() const override { return {.name = "grpc", .detail = "http2/tcp", .is_rdma = false}; }
  std::string address() const override { return ""; }
  absl::Status Connect(SessionId session, const std::string& peer_address, const Secret& secret) override;
  void Send(SessionId session, RequestId request, std::span<const std::byte> bytes, const Digest& hash,
            absl::Duration timeout, Done done) override;
  void Disconnect(SessionId session) override;
  uint64_t messages_dropped() const override { return messages_dropped_; }
  uint64_t buffers_abandoned() const override { return buffers_abandoned_; }
  grpc::Service* service() override { return this; }
  void Stop() override;

 private:
  grpc::Status Deliver(grpc::ServerContext* context, const pb::DeliverRequest* request, Writer* writer);
  SessionPtr Find(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Attach(SourceSession& session, grpc::ServerContext* context);
  // Builds the next chunk. Waits while there is nothing to send. Returns false if the session ended.
  bool NextChunk(SourceSession& session, grpc::ByteBuffer* message, ChunkHead* head);
  static void FillChunk(const SourceSession& session, PendingSend& send, grpc::ByteBuffer* message,
                        ChunkHead* head);
  // Waits until gRPC no longer reads any bytes of the session, at most until the deadline.
  void Settle(const SourceSession& session, Clock::time_point deadline);
  void End(const std::vector<SessionPtr>& sessions);
  // Call after the chunk was handed to the library.
  void Written(SourceSession& session, const ChunkHead& head);
  // Ends the session. Its sends complete with `status`; those with a deadline before `late_before` complete
  // with DeadlineExceeded.
  void Kill(SourceSession& session, const absl::Status& status, Clock::time_point late_before);
  void Finish(Done done, absl::Status status);
  Clock::time_point Tick(Clock::time_point now);

  const Options options_;
  std::atomic<uint64_t> messages_dropped_{0};
  std::atomic<uint64_t> buffers_abandoned_{0};
  Mutex mutex_;
  std::unordered_map<SessionId, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  TaskThread tasks_;  // last: its tick uses the others
};

SessionPtr StreamingSource::Find(SessionId session) {
  MutexLock lock(mutex_);
  auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

absl::Status StreamingSource::Connect(SessionId id, const std::string&, const Secret& secret) {
  auto session = std::make_shared<SourceSession>();
  session->id = id;
  session->secret = secret;
  session->deadline = DeadlineAfter(options_.connect_timeout);
  session->lender = std::make_shared<Lender>(&tasks_);
  {
    MutexLock lock(mutex_);
    if (stopped_) return absl::UnavailableError("the source was stopped");
    if (!sessions_.emplace(id, std::move(session)).second) {
      return absl::AlreadyExistsError(absl::StrCat("session ", id, " exists already"));
    }
  }
  tasks_.Post([] {});  // the deadline is new
  return absl::OkStatus();
}

void StreamingSource::Send(SessionId id, RequestId request, std::span<const std::byte> bytes,
                           const Digest& hash, absl::Duration timeout, Done done) {
  SessionPtr session = Find(id);
  if (session == nullptr) {
    return Finish(std::move(done), absl::UnavailableError(absl::StrCat("unknown session ", id)));
  }
  if (bytes.size() > options_.max_message_bytes) {
    return Finish(std::move(done),
                  absl::InvalidArgumentError(absl::StrCat("request ", request, ": ", bytes.size(),
                                                          " bytes are more than max_message_bytes")));
  }
  {
    MutexLock lock(session->mutex);
    if (!session->failure.ok()) return Finish(std::move(done), session->failure);
    session->queue.push_back({request, bytes, hash, DeadlineAfter(timeout),
                              std::make_shared<Loan>(session->lender, std::move(done))});
    session->changed.NotifyAll();
  }
  tasks_.Post([] {});  // the deadline is new
}

absl::Status StreamingSource::Attach(SourceSession& session, grpc::ServerContext* context) {
  MutexLock lock(session.mutex);
  if (!session.failure.ok()) return session.failure;
  if (session.opened)
    return absl::AlreadyExistsError(absl::StrCat("session ", session.id, " already has a stream"));
  session.opened = true;
  session.stream = context;
  return absl::OkStatus();
}

grpc::Status StreamingSource::Deliver(grpc::ServerContext* context, const pb::DeliverRequest* request,
                                      Writer* writer) {
  SessionPtr session = Find(request->session_id());
  Secret secret{};
  if (request->secret().size() == secret.size()) {
    std::copy(request->secret().begin(), request->secret().end(), secret.begin());
  }
  if (session == nullptr || !SameSecret(secret, session->secret)) {
    ++messages_dropped_;
    return {grpc::StatusCode::PERMISSION_DENIED, "unknown session or wrong secret"};
  }
  absl::Status attached = Attach(*session, context);
  if (!attached.ok()) return {grpc::StatusCode::FAILED_PRECONDITION, std::string(attached.message())};
  writer->SendInitialMetadata();  // the consumer takes this as the opening of its session
  grpc::ByteBuffer message;
  ChunkHead head;
  bool open = true;
  while (open && NextChunk(*session, &message, &head)) {
    open = writer->Write(message, grpc::WriteOptions().set_no_compression());
    message.Clear();
    if (open) Written(*session, head);
  }
  Kill(*session, absl::UnavailableError(absl::StrCat("session ", session->id, ": the consumer is gone")),
       Clock::time_point::min());
  MutexLock lock(session->mutex);
  session->stream = nullptr;
  return {grpc::StatusCode::CANCELLED, "the session ended"};
}

bool StreamingSource::NextChunk(SourceSession& session, grpc::ByteBuffer* message, ChunkHead* head) {
  MutexLock lock(session.mutex);
  while (session.failure.ok()) {
    if (!session.queue.empty()) {
      FillChunk(session, session.queue.front(), message, head);
      return true;
    }
    session.changed.WaitFor(session.mutex, kIdleCheck);
    if (session.stream->IsCancelled()) return false;
  }
  return false;
}

void StreamingSource::FillChunk(const SourceSession& session, PendingSend& send, grpc::ByteBuffer* message,
                                ChunkHead* head) {
  const std::span<const std::byte> data =
      send.bytes.subspan(send.offset, std::min<size_t>(kChunkBytes, send.bytes.size() - send.offset));
  *head = {.request = send.request,
           .offset = send.offset,
           .length = send.bytes.size(),
           .data_bytes = data.size(),
           .first = !send.started,
           .hash = send.hash,
           .secret = session.secret};
  const std::array<grpc::Slice, 2> slices = {grpc::Slice(EncodeChunkHead(*head)),
                                             Loan::Lend(send.loan, data)};
  *message = grpc::ByteBuffer(slices.data(), data.empty() ? 1 : 2);
  send.started = true;
  send.offset += data.size();
}

void StreamingSource::Written(SourceSession& session, const ChunkHead& head) {
  MutexLock lock(session.mutex);
  if (!session.failure.ok() || session.queue.empty()) return;
  PendingSend& send = session.queue.front();
  if (head.offset + head.data_bytes < send.bytes.size()) return;
  send.loan->End(absl::OkStatus());
  session.queue.pop_front();
}

void StreamingSource::Kill(SourceSession& session, const absl::Status& status,
                           Clock::time_point late_before) {
  MutexLock lock(session.mutex);
  if (!session.failure.ok()) return;
  session.failure = status;
  session.settled_by = DeadlineAfter(options_.completion_timeout);
  for (PendingSend& send : session.queue) {
    bool late = send.deadline <= late_before;
    send.loan->End(!late ? status
                         : absl::DeadlineExceededError(absl::StrCat("session ", session.id, ": request ",
                                                                    send.request, ": ", send.bytes.size(),
                                                                    " bytes were not taken in time")));
  }
  session.queue.clear();
  // Wakes the handler if it blocks in Write because the consumer does not read.
  if (session.stream != nullptr) session.stream->TryCancel();
  session.changed.NotifyAll();
  tasks_.Post([] {});  // the deadline is new
}

void StreamingSource::Settle(const SourceSession& session, Clock::time_point deadline) {
  if (!session.lender->WaitUntilFree(deadline)) buffers_abandoned_ += session.lender->Abandon();
}

void StreamingSource::Finish(Done done, absl::Status status) {
  tasks_.Post([done = std::move(done), status = std::move(status)] { done(status); });
}

void StreamingSource::Disconnect(SessionId id) {
  SessionPtr session;
  {
    MutexLock lock(mutex_);
    auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    session = std::move(found->second);
    sessions_.erase(found);
  }
  End({std::move(session)});
}

void StreamingSource::Stop() {
  std::vector<SessionPtr> sessions;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    for (auto& [id, session] : sessions_) sessions.push_back(std::move(session));
    sessions_.clear();
  }
  End(sessions);
}

// All sessions are cancelled first and waited for afterwards, so that many stuck ones take no longer than
// one.
void StreamingSource::End(const std::vector<SessionPtr>& sessions) {
  for (const SessionPtr& session : sessions) {
    Kill(*session, absl::CancelledError(absl::StrCat("session ", session->id, " was disconnected")),
         Clock::time_point::min());
  }
  const Clock::time_point deadline = DeadlineAfter(options_.completion_timeout);
  for (const SessionPtr& session : sessions) Settle(*session, deadline);
  tasks_.Flush();
}

// Checks three deadlines per session: to open the stream, of each send, and of the loans of a dead session.
// Returns the next one.
Clock::time_point StreamingSource::Tick(Clock::time_point now) {
  std::vector<SessionPtr> sessions;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) sessions.push_back(session);
  }
  Clock::time_point next = Clock::time_point::max();
  for (const SessionPtr& session : sessions) {
    bool silent = false, late = false;
    {
      MutexLock lock(session->mutex);
      if (!session->failure.ok()) {
        if (session->lender->free()) continue;
        if (session->settled_by <= now) buffers_abandoned_ += session->lender->Abandon();
        if (session->settled_by > now) next = std::min(next, session->settled_by);
        continue;
      }
      silent = !session->opened && session->deadline <= now;
      if (!session->opened) next = std::min(next, std::max(now, session->deadline));
      for (const PendingSend& send : session->queue) {
        late |= send.deadline <= now;
        next = std::min(next, std::max(now, send.deadline));
      }
    }
    if (silent) {
      Kill(*session,
           absl::UnavailableError(absl::StrCat("session ", session->id,
                                               ": the consumer did not open its stream within ",
                                               absl::FormatDuration(options_.connect_timeout))),
           now);
    } else if (late) {
      Kill(*session,
           absl::UnavailableError(absl::StrCat("session ", session->id, " was closed: a send was late")),
           now);
    }
  }
  return next;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcSource>> MakeGrpcSource(const Options& options) {
  EVENKEEL_RETURN_IF_ERROR(RefuseRequiredRdma(options, "grpc runs over TCP"));
  return std::make_unique<StreamingSource>(options);
}

}  // namespace evenkeel::transport
