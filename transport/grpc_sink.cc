// The receiving side over gRPC: one channel, one Deliver stream and one reading thread per session.
//
// Chunks are copied into the expected buffer under the session's lock. So a request can be cancelled at any
// time without closing the session: once it is no longer expected, nothing writes into its buffer.
//
// Locking: the sink's mutex guards `sessions_`; a session's mutex guards its contents. Lock order: the sink's
// before a session's. Callbacks run on the task thread, without locks.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>
#include <unordered_map>

#include "core/status.h"
#include "proto/service.grpc.pb.h"
#include "transport/chunk.h"
#include "transport/copy.h"
#include "transport/credentials.h"
#include "transport/deadline.h"
#include "transport/factory.h"
#include "transport/secret.h"
#include "transport/task_thread.h"

namespace evenkeel::transport {
namespace {

// Bytes in flight on a session's stream: what one core processes in about 2 ms.
constexpr int kWindowBytes = 4 << 20;
// Smaller parts are likely to be read while they are still in the caches.
constexpr size_t kPastCachesBytes = 1 << 20;

struct Expectation {
  std::span<std::byte> buffer;
  Done done;
  bool started = false;
  size_t received = 0;
  Digest hash;
  Digester digester;  // of what arrived so far; hashed per chunk, while the chunk is in the cache
};

struct SinkSession {
  SessionId id = 0;
  Secret secret{};
  std::string endpoint;
  Clock::time_point deadline;  // for the worker to open the stream
  std::shared_ptr<grpc::Channel> channel;
  grpc::ClientContext context;
  std::thread reader;
  std::atomic<uint64_t> arrived{0};  // bytes

  Mutex mutex;
  std::map<RequestId, Expectation> expected ABSL_GUARDED_BY(mutex);
  bool opened ABSL_GUARDED_BY(mutex) = false;
  RequestId skipping ABSL_GUARDED_BY(mutex) =
      0;  // the request whose chunks are being dropped, which counts as one dropped message
  bool skips ABSL_GUARDED_BY(mutex) = false;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // not OK: dead
};
using SessionPtr = std::shared_ptr<SinkSession>;

class StreamingSink final : public Sink {
 public:
  StreamingSink(const Options& options, std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(options),
        credentials_(std::move(credentials)),
        tasks_("evenkeel-grpc", [this](Clock::time_point now) { return Tick(now); }) {}
  ~StreamingSink() override;

  Info info() const override { return {.name = "grpc", .detail = "http2/tcp", .is_rdma = false}; }
  std::string address() const override { return ""; }
  absl::Status Connect(SessionId session, const std::string& endpoint, const std::string& peer_address,
                       const Secret& secret) override;
  void Expect(SessionId session, RequestId request, std::span<std::byte> buffer, Done done) override;
  void Cancel(SessionId session, RequestId request) override;
  void Disconnect(SessionId session) override;
  uint64_t bytes_received() const override { return bytes_received_; }
  uint64_t bytes_arrived(SessionId session) const override {
    SessionPtr found = Find(session);
    return found == nullptr ? 0 : found->arrived.load();
  }
  uint64_t messages_dropped() const override { return messages_dropped_; }

 private:
  SessionPtr Find(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadAll(SinkSession& session);
  void Take(SinkSession& session, const ChunkHead& head, ChunkReader& chunk)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(session.mutex);
  bool Begin(SinkSession& session, Expectation& expectation, const ChunkHead& head)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(session.mutex);
  void Drop(SinkSession& session, RequestId request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(session.mutex);
  void End(SinkSession& session, RequestId request, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(session.mutex);
  void Kill(SinkSession& session, const absl::Status& status);
  void Finish(Done done, absl::Status status);
  Clock::time_point Tick(Clock::time_point now);

  const Options options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::atomic<uint64_t> bytes_received_{0};
  std::atomic<uint64_t> messages_dropped_{0};
  mutable Mutex mutex_;
  std::unordered_map<SessionId, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
  TaskThread tasks_;  // last: its tick uses the others
};

std::string Where(const SinkSession& session) {
  return absl::StrCat("session ", session.id, " with ", session.endpoint);
}

SessionPtr StreamingSink::Find(SessionId session) const {
  MutexLock lock(mutex_);
  auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

StreamingSink::~StreamingSink() {
  std::vector<SessionId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) ids.push_back(id);
  }
  for (SessionId id : ids) Disconnect(id);
}

absl::Status StreamingSink::Connect(SessionId id, const std::string& endpoint, const std::string&,
                                    const Secret& secret) {
  auto session = std::make_shared<SinkSession>();
  session->id = id;
  session->secret = secret;
  session->endpoint = endpoint;
  session->deadline = DeadlineAfter(options_.connect_timeout);
  // The largest message of a worker of this release. Together with the window, which is fixed, it bounds the
  // memory that a worker can occupy in this process.
  grpc::ChannelArguments arguments = ClientArguments(kChunkBytes + kMaxChunkHeadBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  if (!options_.certified_name.empty()) arguments.SetSslTargetNameOverride(options_.certified_name);
  session->channel = grpc::CreateCustomChannel(endpoint, credentials_, arguments);
  {
    MutexLock lock(mutex_);
    if (!sessions_.emplace(id, session).second) {
      return absl::AlreadyExistsError(absl::StrCat("session ", id, " exists already"));
    }
    session->reader = std::thread([this, session] { ReadAll(*session); });
  }
  tasks_.Post([] {});  // wakes the thread, which computes its next deadline
  return absl::OkStatus();
}

// The reading thread of one session. The call is made with gRPC's internals because the generated stub would
// parse pb::Chunk and copy its data.
void StreamingSink::ReadAll(SinkSession& session) {
  bool malformed = false;
  pb::DeliverRequest request;
  request.set_session_id(session.id);
  request.set_secret(session.secret.data(), session.secret.size());
  const std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader(
      grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
          session.channel.get(),
          grpc::internal::RpcMethod(kDeliver, grpc::internal::RpcMethod::SERVER_STREAMING), &session.context,
          request));
  reader->WaitForInitialMetadata();
  {
    MutexLock lock(session.mutex);
    session.opened = true;
  }
  grpc::ByteBuffer message;
  while (reader->Read(&message)) {
    ChunkReader chunk(&message);
    ChunkHead head;
    if (!chunk.ReadHead(&head)) {
      malformed = true;
      break;
    }
    MutexLock lock(session.mutex);
    if (!session.failure.ok()) break;
    Take(session, head, chunk);
  }
  session.context.TryCancel();  // no effect if the worker ended the stream
  grpc::Status status = reader->Finish();
  Kill(session, absl::UnavailableError(absl::StrCat(
                    Where(session), " ended: ",
                    malformed ? "the worker sent a message that is not a chunk" : status.error_message())));
}

void StreamingSink::Take(SinkSession& session, const ChunkHead& head, ChunkReader& chunk) {
  auto found = session.expected.find(head.request);
  if (head.first && head.offset == 0) session.skips = false;
  if (found == session.expected.end()) return Drop(session, head.request);
  Expectation& expectation = found->second;
  const bool known = head.first ? Begin(session, expectation, head) : expectation.started;
  if (!known) return Drop(session, head.request);
  // Chunks of one part arrive in order on one stream, so any gap, overlap or excess is an error of the
  // sender.
  if (head.length != expectation.buffer.size() || head.offset != expectation.received ||
      head.data_bytes > expectation.buffer.size() - expectation.received) {
    Drop(session, head.request);
    return End(session, head.request,
               absl::DataLossError(absl::StrCat(Where(session), ": request ", head.request, " brought ",
                                                head.length, " bytes from offset ", head.offset,
                                                ", which does not continue the announced part")));
  }
  const bool past_caches = expectation.buffer.size() >= kPastCachesBytes;
  for (std::span<const std::byte> data; chunk.Next(&data);) {
    expectation.digester.Update(data);  // before the copy, while the data are in the core's cache
    const std::span<std::byte> to = expectation.buffer.subspan(expectation.received, data.size());
    if (past_caches) {
      CopyPastCaches(to, data);
    } else {
      std::memcpy(to.data(), data.data(), data.size());
    }
    expectation.received += data.size();
    session.arrived += data.size();
  }
  if (expectation.received < expectation.buffer.size()) return;
  bytes_received_ += expectation.received;
  bool good = expectation.digester.Finish() == expectation.hash;
  End(session, head.request,
      good ? absl::OkStatus()
           : absl::DataLossError(absl::StrCat(Where(session), ": request ", head.request, ": ", head.length,
                                              " bytes arrived, but their hash differs from the sender's")));
}

// The first chunk of a part authenticates it: the secret is the session's, and a part cannot begin twice.
bool StreamingSink::Begin(SinkSession& session, Expectation& expectation, const ChunkHead& head) {
  if (expectation.started || !SameSecret(head.secret, session.secret)) return false;
  expectation.hash = head.hash;
  expectation.started = true;
  return true;
}

// Counts one dropped message per part, not per chunk.
void StreamingSink::Drop(SinkSession& session, RequestId request) {
  if (!session.skips || session.skipping != request) ++messages_dropped_;
  session.skips = true;
  session.skipping = request;
}

void StreamingSink::End(SinkSession& session, RequestId request, absl::Status status) {
  auto found = session.expected.find(request);
  Finish(std::move(found->second.done), std::move(status));
  session.expected.erase(found);
}

void StreamingSink::Expect(SessionId id, RequestId request, std::span<std::byte> buffer, Done done) {
  SessionPtr session = Find(id);
  if (session == nullptr) {
    return Finish(std::move(done), absl::UnavailableError(absl::StrCat("unknown session ", id)));
  }
  if (buffer.size() > options_.max_message_bytes) {
    return Finish(std::move(done), absl::InvalidArgumentError(
                                       absl::StrCat("request ", request, ": longer than max_message_bytes")));
  }
  MutexLock lock(session->mutex);
  if (!session->failure.ok()) return Finish(std::move(done), session->failure);
  if (session->expected.contains(request)) {
    return Finish(std::move(done), absl::AlreadyExistsError(absl::StrCat(Where(*session), ": request ",
                                                                         request, " is expected already")));
  }
  Expectation& expectation = session->expected[request];
  expectation.buffer = buffer;
  expectation.done = std::move(done);
}

// Flush waits until `done` has run, as Sink promises.
void StreamingSink::Cancel(SessionId id, RequestId request) {
  if (SessionPtr session = Find(id); session != nullptr) {
    MutexLock lock(session->mutex);
    if (session->expected.contains(request)) {
      End(*session, request, absl::CancelledError(absl::StrCat("request ", request, " was cancelled")));
    }
  }
  tasks_.Flush();
}

void StreamingSink::Kill(SinkSession& session, const absl::Status& status) {
  MutexLock lock(session.mutex);
  if (!session.failure.ok()) return;
  session.failure = status;
  for (auto& [request, expectation] : session.expected) Finish(std::move(expectation.done), status);
  session.expected.clear();
  session.context.TryCancel();
}

void StreamingSink::Finish(Done done, absl::Status status) {
  tasks_.Post([done = std::move(done), status = std::move(status)] { done(status); });
}

void StreamingSink::Disconnect(SessionId id) {
  SessionPtr session;
  {
    MutexLock lock(mutex_);
    auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    session = found->second;
    sessions_.erase(found);
  }
  Kill(*session, absl::CancelledError(absl::StrCat(Where(*session), " was disconnected")));
  session->reader.join();
  tasks_.Flush();
}

// Ends sessions whose stream was not opened in time. Returns the next deadline.
Clock::time_point StreamingSink::Tick(Clock::time_point now) {
  std::vector<SessionPtr> late;
  Clock::time_point next = Clock::time_point::max();
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      MutexLock session_lock(session->mutex);
      if (session->opened || !session->failure.ok()) continue;
      if (session->deadline <= now) {
        late.push_back(session);
      } else {
        next = std::min(next, session->deadline);
      }
    }
  }
  for (const SessionPtr& session : late) {
    Kill(*session,
         absl::UnavailableError(absl::StrCat(Where(*session), ": no answer on the data plane within ",
                                             absl::FormatDuration(options_.connect_timeout))));
  }
  return next;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sink>> MakeGrpcSink(const Options& options,
                                                   std::shared_ptr<grpc::ChannelCredentials> credentials) {
  EVENKEEL_RETURN_IF_ERROR(RefuseRequiredRdma(options, "grpc runs over TCP"));
  return std::make_unique<StreamingSink>(options, std::move(credentials));
}

}  // namespace evenkeel::transport
