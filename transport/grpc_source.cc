// The sending side over gRPC: one Deliver stream per session, opened by the consumer.
//
// The stream's handler copies a chunk out of the caller's bytes under the session's lock and writes it
// without, so a send can be ended at any time: once it left the queue, nobody reads its bytes.
//
// Who protects what: `sessions_` the source's mutex, everything inside a session the session's. Lock order:
// source's before session's. Callbacks run on the task thread, without locks.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <unordered_map>

#include "core/status.h"
#include "proto/service.grpc.pb.h"
#include "transport/credentials.h"
#include "transport/deadline.h"
#include "transport/factory.h"
#include "transport/secret.h"
#include "transport/task_thread.h"

namespace evenkeel::transport {
namespace {

// How often an idle stream looks whether its consumer is still there.
constexpr absl::Duration kIdleCheck = absl::Milliseconds(200);

struct PendingSend {
  RequestId request = 0;
  std::span<const std::byte> bytes;
  Digest hash;
  Clock::time_point deadline;
  Done done;
  size_t offset = 0;     // of the next chunk
  bool started = false;  // false: not even an empty chunk was made
};

struct SourceSession {
  SessionId id = 0;
  Secret secret{};
  Clock::time_point deadline;  // for the consumer to open its stream

  Mutex mutex;
  CondVar changed;
  std::deque<PendingSend> queue ABSL_GUARDED_BY(mutex);  // the first is on its way
  grpc::ServerContext* stream ABSL_GUARDED_BY(mutex) = nullptr;
  bool opened ABSL_GUARDED_BY(mutex) = false;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // not OK: dead
};
using SessionPtr = std::shared_ptr<SourceSession>;

class StreamingSource final : public GrpcSource, private pb::DataPlane::Service {
 public:
  explicit StreamingSource(const Options& options)
      : options_(options), tasks_("evenkeel-grpc", [this](Clock::time_point now) { return Tick(now); }) {}
  ~StreamingSource() override { Stop(); }

  Info info() const override { return {.name = "grpc", .detail = "http2/tcp", .is_rdma = false}; }
  std::string address() const override { return ""; }
  absl::Status Connect(SessionId session, const std::string& peer_address, const Secret& secret) override;
  void Send(SessionId session, RequestId request, std::span<const std::byte> bytes, const Digest& hash,
            absl::Duration timeout, Done done) override;
  void Disconnect(SessionId session) override;
  uint64_t messages_dropped() const override { return messages_dropped_; }
  grpc::Service* service() override { return this; }
  void Stop() override;

 private:
  grpc::Status Deliver(grpc::ServerContext* context, const pb::DeliverRequest* request,
                       grpc::ServerWriter<pb::Chunk>* writer) override;
  SessionPtr Find(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Attach(SourceSession& session, grpc::ServerContext* context);
  // Fills `chunk` with the next one. False: the session ended. Waits while there is nothing to send.
  bool NextChunk(SourceSession& session, pb::Chunk* chunk);
  void FillChunk(SourceSession& session, PendingSend& send, pb::Chunk* chunk);
  // After `chunk` was handed to the library.
  void Written(SourceSession& session, const pb::Chunk& chunk);
  // Ends the session; all its sends with `status`, or `late` with DeadlineExceeded.
  void Kill(SourceSession& session, const absl::Status& status, Clock::time_point late_before);
  void Finish(Done done, absl::Status status);
  Clock::time_point Tick(Clock::time_point now);

  const Options options_;
  std::atomic<uint64_t> messages_dropped_{0};
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
    session->queue.push_back({request, bytes, hash, DeadlineAfter(timeout), std::move(done)});
    session->changed.NotifyAll();
  }
  tasks_.Post([] {});  // the deadline is new
}

absl::Status StreamingSource::Attach(SourceSession& session, grpc::ServerContext* context) {
  MutexLock lock(session.mutex);
  if (!session.failure.ok()) return session.failure;
  if (session.opened)
    return absl::AlreadyExistsError(absl::StrCat("session ", session.id, " has its stream"));
  session.opened = true;
  session.stream = context;
  return absl::OkStatus();
}

grpc::Status StreamingSource::Deliver(grpc::ServerContext* context, const pb::DeliverRequest* request,
                                      grpc::ServerWriter<pb::Chunk>* writer) {
  SessionPtr session = Find(request->session_id());
  Secret secret{};
  if (request->secret().size() == secret.size()) {
    std::copy(request->secret().begin(), request->secret().end(), secret.begin());
  }
  if (session == nullptr || !SameSecret(secret, session->secret)) {
    ++messages_dropped_;
    return {grpc::StatusCode::PERMISSION_DENIED, "no such session, or not its secret"};
  }
  absl::Status attached = Attach(*session, context);
  if (!attached.ok()) return {grpc::StatusCode::FAILED_PRECONDITION, std::string(attached.message())};
  writer->SendInitialMetadata();  // tells the consumer that its session is open
  pb::Chunk chunk;
  bool open = true;
  while (open && NextChunk(*session, &chunk)) {
    open = writer->Write(chunk, grpc::WriteOptions().set_no_compression());
    if (open) Written(*session, chunk);
  }
  Kill(*session, absl::UnavailableError(absl::StrCat("session ", session->id, ": the consumer is gone")),
       Clock::time_point::min());
  MutexLock lock(session->mutex);
  session->stream = nullptr;
  return {grpc::StatusCode::CANCELLED, "the session ended"};
}

bool StreamingSource::NextChunk(SourceSession& session, pb::Chunk* chunk) {
  MutexLock lock(session.mutex);
  while (session.failure.ok()) {
    if (!session.queue.empty()) {
      FillChunk(session, session.queue.front(), chunk);
      return true;
    }
    session.changed.WaitFor(session.mutex, kIdleCheck);
    if (session.stream->IsCancelled()) return false;
  }
  return false;
}

void StreamingSource::FillChunk(SourceSession& session, PendingSend& send, pb::Chunk* chunk) {
  size_t bytes = std::min<size_t>(kChunkBytes, send.bytes.size() - send.offset);
  chunk->set_request_id(send.request);
  chunk->set_offset(send.offset);
  chunk->set_length(send.bytes.size());
  chunk->set_data(reinterpret_cast<const char*>(send.bytes.data()) + send.offset, bytes);
  if (!send.started) {
    chunk->set_hash(send.hash.bytes.data(), send.hash.bytes.size());
    chunk->set_secret(session.secret.data(), session.secret.size());
  } else {
    chunk->clear_hash();
    chunk->clear_secret();
  }
  send.started = true;
  send.offset += bytes;
}

void StreamingSource::Written(SourceSession& session, const pb::Chunk& chunk) {
  MutexLock lock(session.mutex);
  if (!session.failure.ok() || session.queue.empty()) return;
  PendingSend& send = session.queue.front();
  if (chunk.offset() + chunk.data().size() < send.bytes.size()) return;
  Finish(std::move(send.done), absl::OkStatus());
  session.queue.pop_front();
}

void StreamingSource::Kill(SourceSession& session, const absl::Status& status,
                           Clock::time_point late_before) {
  MutexLock lock(session.mutex);
  if (!session.failure.ok()) return;
  session.failure = status;
  for (PendingSend& send : session.queue) {
    bool late = send.deadline <= late_before;
    Finish(std::move(send.done), !late ? status
                                       : absl::DeadlineExceededError(absl::StrCat(
                                             "session ", session.id, ": request ", send.request, ": ",
                                             send.bytes.size(), " bytes were not taken in time")));
  }
  session.queue.clear();
  // Wakes a handler that waits in Write for a consumer that does not read.
  if (session.stream != nullptr) session.stream->TryCancel();
  session.changed.NotifyAll();
}

void StreamingSource::Finish(Done done, absl::Status status) {
  tasks_.Post([done = std::move(done), status = std::move(status)] { done(status); });
}

void StreamingSource::Disconnect(SessionId id) {
  SessionPtr session = Find(id);
  if (session == nullptr) return;
  {
    MutexLock lock(mutex_);
    sessions_.erase(id);
  }
  Kill(*session, absl::CancelledError(absl::StrCat("session ", id, " was disconnected")),
       Clock::time_point::min());
  tasks_.Flush();
}

void StreamingSource::Stop() {
  std::vector<SessionId> ids;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    for (const auto& [id, session] : sessions_) ids.push_back(id);
  }
  for (SessionId id : ids) Disconnect(id);
  tasks_.Flush();
}

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
      if (!session->failure.ok()) continue;
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
  if (options.require_rdma) {
    return absl::FailedPreconditionError(
        "require_rdma is set, but the transport grpc is TCP; use the transport ucx, or set require_rdma: "
        "false");
  }
  return std::make_unique<StreamingSource>(options);
}

}  // namespace evenkeel::transport
